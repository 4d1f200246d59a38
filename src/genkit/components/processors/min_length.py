"""No end before a number of tokens, prompt included."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import NoEndYet, end_tokens
from genkit.core.run import Run


class MinLength(LogitsProcessor):
    """Forbids the end tokens until prompt and answer together have a number of tokens.

    ``l'[end] = -inf`` while the row has fewer than `limit` tokens. The prompt counts, padding never
    does: a row of a batch ends where it ends alone. End tokens are the model's own and those of
    `token_ids`. A limit of 0 changes nothing, and without an end token there is nothing to forbid.
    A row in which nothing but end tokens was allowed has nothing left, and the run ends with an
    error. (transformers, which counts padding too; onnxruntime-genai.)

    >>> from genkit.testing import process
    >>> process(MinLength(limit=3), [1.0, 3.0, 2.0, 2.0], eos=[1], prompt=[0, 0])
    [1.0, -inf, 2.0, 2.0]
    >>> process(MinLength(limit=3), [1.0, 3.0, 2.0, 2.0], eos=[1], prompt=[0, 0, 0])
    [1.0, 3.0, 2.0, 2.0]
    """

    type: Literal["min_length"] = "min_length"
    may_empty: ClassVar[bool] = True

    limit: int = Field(ge=0, description="the least tokens, prompt included, at least 0")
    token_ids: tuple[int, ...] = Field(
        (), description="ids that are forbidden besides the model's own end tokens"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.limit == 0

    def bind(self, run: Run) -> NoEndYet | None:
        """The end tokens on the run's device; None where there is nothing to forbid.

        Raises:
            InputError: the model does not have one of the ids.
        """
        end_ids = end_tokens(self.type, run, self.token_ids)
        if self.is_neutral or not len(end_ids):
            return None
        return NoEndYet(self.type, end_ids, lambda state: state.num_tokens < self.limit)
