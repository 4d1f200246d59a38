"""Tokens that were there already become less likely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState


class RepetitionPenalty(LogitsProcessor):
    """Makes every token that prompt or answer contain less likely, once, however often it came.

    ``l' = l * penalty`` where l is negative, ``l / penalty`` elsewhere. 1 changes nothing, above 1
    discourages, below 1 encourages. Since it acts on the sign of l, it is not the same before and
    after something that shifts the logits. Padding is never in the history. (Keskar et al. 2019.)
    """

    type: Literal["repetition_penalty"] = "repetition_penalty"

    penalty: float = Field(gt=0, description="above 1 discourages repetition, above 0")

    def bind(self, run: Run) -> _SeenTokens | None:
        """The tokens seen so far, kept up to date in constant time a token."""
        return None if self.penalty == 1 else _SeenTokens(self.penalty, run)


class _SeenTokens:
    """Which tokens each row has seen, bool `[batch, vocab]`."""

    name = "repetition_penalty"

    def __init__(self, penalty: float, run: Run) -> None:
        self.penalty = penalty
        self.seen = torch.zeros((len(run), run.vocab_size), dtype=torch.bool, device=run.device)
        self.length = 0

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self._look(state)
        penalised = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
        return torch.where(self.seen, penalised, logits)

    def _look(self, state: GenerationState) -> None:
        if self.length == 0:  # only the prompt's columns can be padding
            for i in range(len(state)):
                self.seen[i, state.row(i)] = True
        else:
            self.seen.scatter_(1, state.token_ids[:, self.length :], True)
        self.length = state.length

    def reorder(self, indices: Sequence[int]) -> None:
        self.seen = self.seen[torch.tensor(indices, device=self.seen.device)]
