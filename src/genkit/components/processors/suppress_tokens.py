"""Tokens that are never chosen."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import forbid, token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class SuppressTokens(LogitsProcessor):
    """Forbids certain tokens in every step.

    ``l'[id] = -inf``. No ids change nothing. An id that the model does not have is an error, where
    transformers ignores it. (transformers, made for Whisper.)

    >>> from genkit.testing import process
    >>> process(SuppressTokens(token_ids=[1]), [1.0, 3.0, 2.0, 2.0])
    [1.0, -inf, 2.0, 2.0]
    """

    type: Literal["suppress_tokens"] = "suppress_tokens"
    may_empty: ClassVar[bool] = True

    token_ids: tuple[int, ...] = Field(description="ids that are never chosen")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return not self.token_ids

    def bind(self, run: Run) -> _Suppressed | None:
        """The ids on the run's device; None where there are none.

        Raises:
            InputError: the model does not have one of the ids.
        """
        return None if self.is_neutral else _Suppressed(self, run)


class _Suppressed(Rowless):
    def __init__(self, spec: SuppressTokens, run: Run) -> None:
        super().__init__(spec.type)
        self.token_ids = token_tensor(spec.type, spec.token_ids, run)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        return forbid(logits, self.token_ids)
