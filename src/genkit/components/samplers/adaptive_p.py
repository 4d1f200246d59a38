"""Draws that keep the probability of the chosen tokens near a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import Sampler
from genkit.components.samplers.categorical import Categorical, inverse_cdf
from genkit.components.samplers.draw_trail import DrawTrail
from genkit.core import contracts
from genkit.core.run import Run
from genkit.core.state import GenerationState

_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3


class AdaptiveP(Sampler):
    """Prefers tokens that bring the average of the chosen probabilities near `target`.

    Each row has a weighted sum S of the probabilities of its chosen tokens, and the sum W of the
    weights. The probability aimed at makes up for what was chosen before, and each allowed token is
    drawn with the softmax of l', as `categorical` draws::

        a = 2 target - S / W,  not below 0 and not above 1
        d = |p - a| / 0.3,  l' = 5 - 10 d^2 / (1 + d)
        S <- p + decay S,  W <- 1 + decay W,  for the token chosen

    In the beginning W is ``1 / (1 - decay)`` and S is `start` times that. The sums of a row change
    once for each token that comes as it was drawn. p is the probability that the processors have
    left; l' of improbable tokens is close to 5 - 10 (a / 0.3)^2 / (1 + a / 0.3), however many there
    are, so a filter such as `min_p` belongs before it. A target below 0 draws as `categorical`.

    It is llama.cpp's, whose decay is at most 0.99 and whose target counts as 1 above that.

    Of probabilities 0.7, 0.2, 0.05 and 0.05 a target of 0.2 all but rules out the first: l' is
    -5.4, 5, 3.3 and 3.3, so that the tokens are drawn with 0.00, 0.73, 0.14 and 0.14. The seeds 0
    and 4 have u = 0.40 and 0.92:

    >>> from genkit.testing import choose
    >>> logits = [2.639, 1.386, 0.0, 0.0]
    >>> [choose(AdaptiveP(target=0.7), logits, seed=seed) for seed in (0, 4)]
    [0, 0]
    >>> [choose(AdaptiveP(target=0.2), logits, seed=seed) for seed in (0, 4)]
    [1, 3]
    """

    type: Literal["adaptive_p"] = "adaptive_p"

    target: float = Field(
        le=1,
        description="average probability that chosen tokens are to have, 0 to 1; "
        "below 0 the distribution is left as it is",
    )
    decay: float = Field(
        0.9,
        ge=0,
        le=0.99,
        description="what a chosen token still weighs after one more, 0 to 0.99; the average is "
        "over about 1 / (1 - decay) tokens",
    )
    start: float | None = Field(
        None, ge=0, description="the average before the first token; by default the target"
    )

    def bind(self, run: Run) -> contracts.Sampler:
        """The sampler with the sums of each row."""
        return Categorical().bind(run) if self.target < 0 else _AdaptiveP(self, run)


class _AdaptiveP:
    name = "adaptive_p"

    def __init__(self, spec: AdaptiveP, run: Run) -> None:
        self.spec = spec
        self.purpose = run.purpose
        weight = 1 / (1 - spec.decay)
        start = spec.target if spec.start is None else spec.start
        first = torch.tensor([[start * weight, weight]], dtype=torch.float64, device=run.device)
        self.sums = DrawTrail(first.repeat(len(run), 1))

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        sums = self.sums.at(state)
        probs = logits.softmax(-1, dtype=torch.float64)
        masses = self.reshaped(logits, probs, sums).softmax(-1)
        ids = inverse_cdf(masses, state.rng.uniform(self.purpose))
        chosen = probs.gather(-1, ids.clamp(min=0).unsqueeze(-1))
        added = torch.cat((chosen, torch.ones_like(chosen)), -1)
        self.sums.drawn(state, ids, added + self.spec.decay * sums)
        return ids

    def reshaped(
        self, logits: torch.Tensor, probs: torch.Tensor, sums: torch.Tensor
    ) -> torch.Tensor:
        """l' of each token, float64 `[batch, vocab]`.

        Args:
            logits, probs: what the processors have left, `[batch, vocab]`.
            sums: S and W of each row, `[batch, 2]`.
        """
        average = sums[:, :1] / sums[:, 1:]
        aim = (2 * self.spec.target - average).clamp(0, 1)
        distance = (probs - aim).abs() / _WIDTH
        reshaped = _PEAK - _SHARPNESS * distance.square() / (1 + distance)
        return reshaped.masked_fill(logits == -math.inf, -math.inf)

    def reorder(self, indices: Sequence[int]) -> None:
        self.sums.reorder(indices)

    def rewind(self, n: int) -> None:
        self.sums.rewind(n)
