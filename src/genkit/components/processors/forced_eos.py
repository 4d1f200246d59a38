"""An end where there is no more room."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import end_tokens, forced
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError


class ForcedEos(LogitsProcessor):
    """Allows nothing but end tokens in the last place that a row's limit leaves.

    There ``l'[end] = 0``, all alike, and -inf for all others, whatever was forbidden before.
    Everywhere else nothing changes. A row's limit is the least of the model's context and of what
    `max_new_tokens` and `max_length` leave. (transformers, where it is `max_length`.)

    >>> from genkit.testing import process
    >>> process(ForcedEos(token_ids=[3]), [1.0, 3.0, 2.0, 2.0], prompt=[0, 0], limit=3)
    [-inf, -inf, -inf, 0.0]
    >>> process(ForcedEos(token_ids=[3]), [1.0, 3.0, 2.0, 2.0], prompt=[0, 0], limit=4)
    [1.0, 3.0, 2.0, 2.0]
    """

    type: Literal["forced_eos"] = "forced_eos"
    may_allow: ClassVar[bool] = True

    token_ids: tuple[int, ...] | None = Field(
        None, min_length=1, description="end tokens in place of the model's own"
    )

    def bind(self, run: Run) -> _LastPlace:
        """The forced row on the run's device.

        Raises:
            InputError: the model does not have one of the ids.
            UnsupportedError: no ids are given, and the model has no end token.
        """
        return _LastPlace(self, run)


class _LastPlace(Rowless):
    def __init__(self, spec: ForcedEos, run: Run) -> None:
        super().__init__(spec.type)
        ids = end_tokens(spec.type, run, instead=spec.token_ids)
        if not len(ids):
            raise UnsupportedError(
                "forced_eos has no token to force: this model names no end token; give token_ids"
            )
        self.forced = forced(ids, run)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        if state.length + 1 < state.nearest_end:
            return logits
        last = state.ends == state.length + 1
        return torch.where(last.unsqueeze(-1), self.forced, logits)
