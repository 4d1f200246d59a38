"""Flatter at the top, steeper below."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Smoothing(LogitsProcessor):
    """Bends the logits: the best tokens move together, the others away.

    With the distance ``x = l - l_max`` from the largest logit, which stays:

    ``l' = l_max - k * factor * x**2 + s * factor * x**3``, ``k = (3 - curve) / 2`` and
    ``s = (curve - 1) / 2``.

    Nothing is cut off. A factor of 0 changes nothing. The curve goes from 1, where only the square
    counts (quadratic sampling), to 3, where only the cube does; beyond 3 the second best token
    would overtake the best, and the curve is refused. (kalomaze 2024; text-generation-webui.)

    >>> from genkit.testing import process
    >>> process(Smoothing(factor=0.5), [4.0, 3.0, 2.0, 0.0])
    [4.0, 3.5, 2.0, -4.0]
    """

    type: Literal["smoothing"] = "smoothing"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    factor: float = Field(ge=0, le=1e6, description="how strong, from 0, which changes nothing")
    curve: float = Field(1.0, ge=1, le=3, description="from 1 (square) to 3 (cube)")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.factor == 0

    def bind(self, run: Run) -> Smoothing | None:
        """Nothing to do where the factor is 0."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The bent logits, `[batch, vocab]`."""
        if self.is_neutral:
            return logits
        largest = logits.amax(-1, keepdim=True)
        distance = logits - largest
        square, cube = (3 - self.curve) / 2, (self.curve - 1) / 2
        bent = largest + self.factor * distance.square() * (cube * distance - square)
        return bent.masked_fill_(logits == -math.inf, -math.inf)  # 0 * -inf is no number
