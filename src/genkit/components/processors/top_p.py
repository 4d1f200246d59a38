"""The smallest set of tokens that holds the mass p."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState

_TINY = 5e-324  # the least float64 above 0: with p = 0 the most probable token is still kept


class TopP(LogitsProcessor):
    """Keeps the most probable tokens until they hold the mass p: nucleus sampling.

    A token is kept when the mass ranked strictly above it is less than p; the most probable token
    always is. Tokens rank by logit, equal ones by the lower id. Masses are those of the tokens that
    are still allowed and are summed in float64. 1 keeps everything. (Holtzman et al. 2019.)
    """

    type: Literal["top_p"] = "top_p"
    keeps_argmax: ClassVar[bool] = True

    p: float = Field(ge=0, le=1, description="the mass to keep, from 0 to 1")

    def bind(self, run: Run) -> TopP | None:
        """Nothing to do where p is 1."""
        return self if self.p < 1 else None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the tail of each row at -inf, `[batch, vocab]`."""
        ranked, order = torch.sort(logits, dim=-1, descending=True, stable=True)
        probs = ranked.softmax(-1, dtype=torch.float64)
        # Nothing ranks above the first token: the mass above it is exactly 0, and it is kept.
        dropped = probs.cumsum(-1).sub_(probs) >= max(self.p, _TINY)
        return logits.masked_fill(dropped.scatter(-1, order, dropped), -math.inf)
