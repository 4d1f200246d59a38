"""No end before a number of generated tokens."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import NoEndYet, end_tokens
from genkit.core.run import Run
from genkit.core.state import GenerationState


class MinNewTokens(LogitsProcessor):
    """Forbids the end tokens until a row has generated a number of tokens.

    ``l'[end] = -inf`` while the row has fewer than `limit` tokens of its own. End tokens are the
    model's own and those of `token_ids`; ids that end a row by a `stop_token_ids` criterion belong
    there. Stop strings are not looked at. A limit of 0 changes nothing, and without an end token
    there is nothing to forbid. (transformers; `min_tokens` of vLLM and `min_new_tokens` of SGLang,
    which forbid stop ids too.)

    A row in which nothing but end tokens was allowed has nothing left, and the run ends with an
    error. With ``if_none_left: allow`` such a row is left as it is, as vLLM does where a grammar
    allows nothing else.

    >>> from genkit.testing import process
    >>> process(MinNewTokens(limit=1), [1.0, 3.0, 2.0, 2.0], eos=[1])
    [1.0, -inf, 2.0, 2.0]
    >>> process(MinNewTokens(limit=1), [1.0, 3.0, 2.0, 2.0], eos=[1], generated=[2])
    [1.0, 3.0, 2.0, 2.0]
    """

    type: Literal["min_new_tokens"] = "min_new_tokens"
    may_empty: ClassVar[bool] = True

    limit: int = Field(ge=0, description="the least tokens to generate before an end, at least 0")
    token_ids: tuple[int, ...] = Field(
        (), description="ids that are forbidden besides the model's own end tokens"
    )
    if_none_left: Literal["forbid", "allow"] = Field(
        "forbid",
        description="where only end tokens are allowed: `forbid` them, which ends the run, or "
        "`allow` them",
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
        made = NoEndYet if self.if_none_left == "forbid" else _NoEndUnlessAlone
        return made(self.type, end_ids, lambda state: state.num_generated < self.limit)


class _NoEndUnlessAlone(NoEndYet):
    """Leaves rows as they are in which nothing but end tokens is allowed."""

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        kept = super().__call__(state, logits)
        none_left = kept.amax(-1, keepdim=True) == -math.inf
        return torch.where(none_left, logits, kept)
