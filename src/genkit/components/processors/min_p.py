"""The tokens that are not far less probable than the first."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState


class MinP(LogitsProcessor):
    """Keeps every token at least `min_p` times as probable as the most probable one.

    Kept when ``l >= l_max + ln(min_p)``, which is ``p >= min_p * p_max`` without a softmax. 0 keeps
    everything. (Nguyen et al. 2024.)
    """

    type: Literal["min_p"] = "min_p"
    keeps_argmax: ClassVar[bool] = True

    min_p: float = Field(ge=0, le=1, description="the share of the largest probability, 0 to 1")

    def bind(self, run: Run) -> MinP | None:
        """Nothing to do where min_p is 0."""
        return self if self.min_p > 0 else None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        if self.min_p == 0:
            return logits
        threshold = logits.amax(-1, keepdim=True) + math.log(self.min_p)
        return logits.masked_fill(logits < threshold, -math.inf)
