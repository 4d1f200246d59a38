"""Sharper or flatter."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState

COLDEST = 1e-30
"""A lower temperature counts as 0: dividing by it, ordinary float32 logits would overflow."""


class Temperature(LogitsProcessor):
    """Divides the logits: below 1 the distribution sharpens, above 1 it flattens.

    ``l' = l / T``, a division and not a multiplication by 1/T: bit for bit that of transformers and
    llama.cpp in float32. 1 changes nothing.

    T = 0 means greedy decoding: only the first of the largest logits stays, as it is, and every
    other token is forbidden. So any sampler chooses what the `greedy` sampler would. A temperature
    below 1e-30 counts as 0. (llama.cpp; transformers refuses 0.)

    >>> from genkit.testing import process
    >>> process(Temperature(temperature=0.5), [3.0, 2.0, -1.0, 3.0])
    [6.0, 4.0, -2.0, 6.0]
    >>> process(Temperature(temperature=0), [3.0, 2.0, -1.0, 3.0])
    [3.0, -inf, -inf, -inf]
    """

    type: Literal["temperature"] = "temperature"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    temperature: float = Field(
        ge=0,
        le=1e38,
        description="T, 0 to 1e38: 0 is greedy, below 1 is sharper, above 1 is flatter",
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.temperature == 1

    def bind(self, run: Run) -> Temperature | None:
        """Nothing to do where T is 1."""
        return None if self.is_neutral else self

    @property
    def divisor(self) -> float | None:
        """What all logits are divided by; None where something else happens."""
        return self.temperature if self.temperature >= COLDEST else None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """``logits / temperature``, `[batch, vocab]`."""
        if self.temperature < COLDEST:
            return first_of_the_largest(logits)
        return logits / self.temperature


def first_of_the_largest(logits: torch.Tensor) -> torch.Tensor:
    """The logits with every token of a row at -inf but the most probable, the lowest id of them."""
    largest, ids = logits.max(-1, keepdim=True)  # of several maxima torch gives the first
    return torch.full_like(logits, -math.inf).scatter_(-1, ids, largest)
