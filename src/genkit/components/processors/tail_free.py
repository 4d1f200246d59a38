"""The tokens before the distribution flattens out."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import beyond, weights
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TailFree(LogitsProcessor):
    """Cuts the tail off where the sorted probabilities stop bending: tail-free sampling.

    The probabilities of the whole vocabulary are sorted, the largest first, those of forbidden
    tokens being 0. How they bend at the second, third, ... last but one is the absolute second
    difference ``d_i = |p_(i-1) - 2 p_i + p_(i+1)|``. A token is kept while the sum of d up to it is
    at most z times the sum of all; the most probable one always is, the least probable one of the
    vocabulary never, unless it is the only one. Equal ones rank by the lower id. 1 keeps
    everything. (Bricken 2019, as in text-generation-webui; llama.cpp, while it had it, kept one
    token less.)

    Probabilities 0.7, 0.2, 0.06 and 0.04; d is 0.36 at the second and 0.12 at the third, which is
    three quarters and one quarter of the sum:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(TailFree(z=0.8), [log(0.7), log(0.2), log(0.06), log(0.04)])
    [-0.3567, -1.6094, -inf, -inf]
    """

    type: Literal["tail_free"] = "tail_free"
    keeps_argmax: ClassVar[bool] = True

    z: float = Field(ge=0, le=1, description="the share of the bend, 0 to 1; 1 keeps everything")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.z == 1

    def bind(self, run: Run) -> TailFree | None:
        """Nothing to do where z is 1."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the tail of each row at -inf, `[batch, vocab]`."""
        if self.is_neutral or logits.shape[-1] == 1:
            return logits
        ranked = logits.sort(dim=-1, descending=True).values
        bend = weights(ranked, ranked[:, :1]).diff(n=2).abs_()
        running = bend.cumsum_(-1)
        count = (running <= running[:, -1:] * self.z).sum(-1, keepdim=True) + 1
        return logits.masked_fill(beyond(logits, ranked, count), -math.inf)
