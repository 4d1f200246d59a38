"""The tokens within n standard deviations of the largest logit."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState


class TopNSigma(LogitsProcessor):
    """Keeps every token whose logit is at most n standard deviations below the largest.

    Kept when ``l >= l_max - n * sigma``. Sigma is the standard deviation of the logits of tokens
    that are still allowed, in float64: the root of their mean squared distance from their mean
    (``population``, as in llama.cpp), or with one less in the denominator (``sample``, as in the
    authors' code). A temperature, before or after, does not change what is kept. A row with
    a single allowed token stays as it is. (Tang et al. 2024.)

    The logits 4, 2, 0 and -2 have a standard deviation of 2.24:

    >>> from genkit.testing import process
    >>> process(TopNSigma(n=1.0), [4.0, 2.0, 0.0, -2.0])
    [4.0, 2.0, -inf, -inf]
    """

    type: Literal["top_n_sigma"] = "top_n_sigma"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    n: float = Field(gt=0, description="how many standard deviations, above 0")
    deviation: Literal["population", "sample"] = Field(
        "population", description="the standard deviation of the row, or the estimate from a sample"
    )

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with those far below the largest at -inf, `[batch, vocab]`."""
        wide, allowed = logits.double(), logits > -math.inf
        count = allowed.sum(-1, keepdim=True)
        mean = wide.where(allowed, 0.0).sum(-1, keepdim=True) / count
        distance = (wide - mean).where(allowed, 0.0)
        divisor = count if self.deviation == "population" else (count - 1).clamp_(min=1)
        sigma = distance.square_().sum(-1, keepdim=True).div_(divisor).sqrt_()
        lowest = wide.amax(-1, keepdim=True) - self.n * sigma
        return logits.masked_fill(wide < lowest, -math.inf)
