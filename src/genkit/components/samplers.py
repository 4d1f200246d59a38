"""Samplers: each chooses the next token from the processed logits."""

from __future__ import annotations

from typing import Literal

import torch

from genkit.components.base import Sampler
from genkit.core.run import Run
from genkit.core.state import GenerationState

__all__ = ["Categorical", "Greedy"]


class Greedy(Sampler):
    """Chooses the most probable token; among equal ones the lowest id."""

    type: Literal["greedy"] = "greedy"

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The ids of the largest logits, int64 `[batch]`."""
        return logits.argmax(-1)  # of several maxima torch gives the first


class Categorical(Sampler):
    """Draws a token with its probability.

    With one uniform number u a row, the first token in the order of ids whose running mass exceeds
    u times the total. Masses are float64. A token of probability 0 is never drawn.
    """

    type: Literal["categorical"] = "categorical"

    def bind(self, run: Run) -> _InverseCdf:
        """The sampler with the purpose of its draws."""
        return _InverseCdf(run.purpose)


class _InverseCdf:
    name = "categorical"

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        running = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
        total = running.select(-1, -1)
        # u is at most 1 - 2**-53, so u * total is below total also when rounded: some running mass
        # exceeds it, and the first that does belongs to a token of positive probability.
        target = state.rng.uniform(self.purpose) * total
        ids = torch.searchsorted(running, target.unsqueeze(-1), right=True).squeeze(-1)
        # An empty row and one with NaN or +inf have no total; the loop finds out why.
        return ids.masked_fill_(total.isnan(), -1)

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row."""
