"""The tokens above a fixed probability."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import probabilities, spared
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Epsilon(LogitsProcessor):
    """Keeps every token whose probability is at least epsilon.

    Kept when ``p >= epsilon``, or when no fewer than `min_keep` tokens would stay without it: every
    token as probable as the `min_keep`-th stays, equal ones with it. Probabilities are those of the
    tokens that are still allowed, in float64. 0 keeps everything. (Hewitt et al. 2022,
    transformers.)

    Probabilities 0.5, 0.25, 0.125 and 0.125:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(Epsilon(epsilon=0.2), [log(0.5), log(0.25), log(0.125), log(0.125)])
    [-0.6931, -1.3863, -inf, -inf]
    """

    type: Literal["epsilon"] = "epsilon"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    epsilon: float = Field(
        ge=0, lt=1, description="the least probability, from 0 to below 1; 0 keeps everything"
    )
    min_keep: int = Field(1, ge=1, description="how many tokens are kept at least")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.epsilon == 0

    def bind(self, run: Run) -> Epsilon | None:
        """Nothing to do where epsilon is 0."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        dropped = probabilities(logits) < self.epsilon
        return logits.masked_fill(spared(dropped, logits, self.min_keep, "keep"), -math.inf)
