"""The most probable token."""

from __future__ import annotations

from typing import Literal

import torch

from genkit.components.base import Sampler
from genkit.core.state import GenerationState


class Greedy(Sampler):
    """Chooses the most probable token; among equal ones the lowest id.

    ``id = argmax(l)``. All engines do so on the CPU; on a GPU some give any of the equal ones.
    There is no randomness, so the seed makes no difference.

    >>> from genkit.testing import choose
    >>> choose(Greedy(), [1.0, 3.0, 3.0, 2.0])
    1
    """

    type: Literal["greedy"] = "greedy"

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The ids of the largest logits, int64 `[batch]`."""
        return logits.argmax(-1)  # of several maxima torch gives the first
