"""The tokens above a share of the squared largest probability."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import probabilities
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TopA(LogitsProcessor):
    """Keeps every token whose probability is at least `a` times the square of the largest.

    Kept when ``p >= a * p_max ** 2``: the more certain the model, the stricter. Probabilities are
    those of the tokens that are still allowed, in float64. 0 keeps everything.
    (BlinkDL, RWKV-LM 2022; text-generation-webui.)

    Probabilities 0.5, 0.25, 0.125 and 0.125; at least ``0.6 * 0.25 = 0.15`` is asked of each:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(TopA(a=0.6), [log(0.5), log(0.25), log(0.125), log(0.125)])
    [-0.6931, -1.3863, -inf, -inf]
    """

    type: Literal["top_a"] = "top_a"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    a: float = Field(
        ge=0, le=1, description="the share of the squared probability, 0 to 1; 0 keeps everything"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.a == 0

    def bind(self, run: Run) -> TopA | None:
        """Nothing to do where a is 0."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        probs = probabilities(logits)
        least = probs.amax(-1, keepdim=True).square_().mul_(self.a)
        return logits.masked_fill(probs < least, -math.inf)
