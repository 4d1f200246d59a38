"""The most probable tokens that hold a share of the entropy."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import beyond, weights
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TopH(LogitsProcessor):
    """Keeps the most probable tokens that hold at most the share h of the entropy.

    Only the `num_candidates` most probable tokens are looked at, equal ones by the lower id, and
    their probabilities are made to add up to 1. Each contributes ``-p ln p`` to their entropy H.
    A token is kept when ``through <= h * H``, where ``through`` are the contributions of all tokens
    from the most probable one to it, summed in float64. The most probable token always stays, and
    one without probability never does. With an h of 1 all candidates stay. (Potraghloo et al. 2025;
    transformers has 100 candidates.)

    Probabilities 0.5, 0.25, 0.125 and 0.125 contribute 2, 2, 1.5 and 1.5 of 7 parts:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(TopH(h=0.6), [log(0.5), log(0.25), log(0.125), log(0.125)])
    [-0.6931, -1.3863, -inf, -inf]
    """

    type: Literal["top_h"] = "top_h"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    h: float = Field(gt=0, le=1, description="the share of the entropy, above 0 to 1")
    num_candidates: int = Field(
        100, ge=1, description="how many of the most probable tokens are looked at"
    )

    def bind(self, run: Run) -> TopH | None:
        """Nothing to do where h is 1 and every token is a candidate."""
        return self if self.h < 1 or self.num_candidates < run.vocab_size else None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with all that is not kept at -inf, `[batch, vocab]`."""
        largest = logits.topk(min(self.num_candidates, logits.shape[-1]), dim=-1).values
        probs = weights(largest, largest[:, :1])
        probs /= probs.sum(-1, keepdim=True)
        running = torch.special.entr(probs).cumsum(-1)
        kept = (running <= running[:, -1:] * self.h) & (probs > 0)
        count = kept.sum(-1, keepdim=True).clamp_(min=1)
        return logits.masked_fill(beyond(logits, largest, count), -math.inf)
