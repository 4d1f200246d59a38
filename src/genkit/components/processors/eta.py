"""The tokens above a probability that falls with the entropy."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import entropy, probabilities, spared
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Eta(LogitsProcessor):
    """Keeps every token whose probability is at least eta, lower as entropy rises.

    ``eta = min(epsilon, sqrt(epsilon) * exp(-H))``, where H is the entropy of the row in nats. As
    in `epsilon`, tokens as probable as the `min_keep`-th stay in any case. Useful values of epsilon
    are from 0.0003 to 0.004. 0 keeps everything. (Hewitt et al. 2022, transformers.)

    Probabilities 0.7, 0.1, 0.1 and 0.1 have an entropy of 0.94 nats, so that eta is the lesser of
    0.16 and ``0.4 * exp(-0.94) = 0.156``:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(Eta(epsilon=0.16), [log(0.7), log(0.1), log(0.1), log(0.1)])
    [-0.3567, -inf, -inf, -inf]
    """

    type: Literal["eta"] = "eta"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    epsilon: float = Field(
        ge=0, lt=1, description="the largest that eta can be, from 0 to below 1; 0 keeps everything"
    )
    min_keep: int = Field(1, ge=1, description="how many tokens are kept at least")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.epsilon == 0

    def bind(self, run: Run) -> Eta | None:
        """Nothing to do where epsilon is 0."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        probs = probabilities(logits)
        eta = entropy(probs).neg().exp() * math.sqrt(self.epsilon)
        dropped = probs < eta.clamp_(max=self.epsilon)
        return logits.masked_fill(spared(dropped, logits, self.min_keep, "keep"), -math.inf)
