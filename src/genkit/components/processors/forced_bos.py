"""The token that an answer begins with."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import forced, token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class ForcedBos(LogitsProcessor):
    """Allows a single token at the beginning of an answer.

    There ``l'[token_id] = 0`` and -inf for all others, whatever was forbidden before. Everywhere
    else nothing changes. By default that is the first token of every answer. transformers, where
    the part is made for decoders that start from one token, forces the second token of a text: it
    does nothing after a longer prompt, and so does ``place: second_of_text``.

    >>> from genkit.testing import process
    >>> process(ForcedBos(token_id=2), [1.0, 3.0, 2.0, 2.0])
    [-inf, -inf, 0.0, -inf]
    >>> process(ForcedBos(token_id=2), [1.0, 3.0, 2.0, 2.0], generated=[2])
    [1.0, 3.0, 2.0, 2.0]
    """

    type: Literal["forced_bos"] = "forced_bos"
    may_allow: ClassVar[bool] = True

    token_id: int = Field(description="the id that is forced")
    place: Literal["first_of_answer", "second_of_text"] = Field(
        "first_of_answer",
        description="which token is forced: the first of the answer, or the second of prompt and "
        "answer together",
    )

    def bind(self, run: Run) -> _Beginning:
        """The forced row on the run's device.

        Raises:
            InputError: the model does not have the id.
        """
        return _Beginning(self, run)


class _Beginning(Rowless):
    def __init__(self, spec: ForcedBos, run: Run) -> None:
        super().__init__(spec.type)
        self.of_answer = spec.place == "first_of_answer"
        self.forced = forced(token_tensor(spec.type, [spec.token_id], run), run)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        begins = state.num_generated == 0 if self.of_answer else state.num_tokens == 1
        return torch.where(begins.unsqueeze(-1), self.forced, logits)
