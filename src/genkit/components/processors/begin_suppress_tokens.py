"""Tokens that no answer begins with."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import forbid, token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class BeginSuppressTokens(LogitsProcessor):
    """Forbids certain tokens at the beginning of an answer.

    ``l'[id] = -inf`` while a row has generated at least `begin_index` tokens and fewer than
    ``begin_index + num_tokens``; by default, for its first token alone. Each row is counted by
    itself, and the prompt is not counted. (transformers, made for Whisper; its `begin_index` counts
    the prompt, and is one more where a begin token is forced.) No ids change nothing.

    >>> from genkit.testing import process
    >>> process(BeginSuppressTokens(token_ids=[1]), [1.0, 3.0, 2.0, 2.0])
    [1.0, -inf, 2.0, 2.0]
    >>> process(BeginSuppressTokens(token_ids=[1]), [1.0, 3.0, 2.0, 2.0], generated=[2])
    [1.0, 3.0, 2.0, 2.0]
    """

    type: Literal["begin_suppress_tokens"] = "begin_suppress_tokens"
    may_empty: ClassVar[bool] = True

    token_ids: tuple[int, ...] = Field(description="ids that are not chosen there")
    begin_index: int = Field(
        0, ge=0, description="how many tokens are generated before that, at least 0"
    )
    num_tokens: int = Field(1, ge=1, description="for how many tokens, at least 1")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return not self.token_ids

    def bind(self, run: Run) -> _SuppressedFirst | None:
        """The ids on the run's device; None where there are none.

        Raises:
            InputError: the model does not have one of the ids.
        """
        return None if self.is_neutral else _SuppressedFirst(self, run)


class _SuppressedFirst(Rowless):
    def __init__(self, spec: BeginSuppressTokens, run: Run) -> None:
        super().__init__(spec.type)
        self.token_ids = token_tensor(spec.type, spec.token_ids, run)
        self.begin = spec.begin_index
        self.end = min(spec.begin_index + spec.num_tokens, 2**63 - 1)  # what a tensor holds

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        generated = state.num_generated
        return forbid(logits, self.token_ids, (generated >= self.begin) & (generated < self.end))
