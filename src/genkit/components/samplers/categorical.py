"""A draw from the distribution."""

from __future__ import annotations

from typing import Literal

import torch

from genkit.components.base import Sampler
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Categorical(Sampler):
    """Draws a token with its probability.

    With one uniform number u a row it is the first token in the order of ids for which
    ``through > u * total``, where ``through`` is the mass of all tokens up to it. Masses are
    float64. A token of probability 0 is never drawn.

    u depends on the row's seed, its sample and the step, and on nothing else (see `state.rng`), so
    that a row draws the same alone and in any company, on every device. llama.cpp draws in the same
    way, in the order in which its filters leave the tokens; transformers, vLLM and SGLang perturb
    every logit instead, so their tokens differ from these at the same seed, their frequencies not.

    The masses of probabilities 0.1, 0.2, 0.3 and 0.4 run up to 0.1, 0.3, 0.6 and 1. The seeds 5, 0
    and 4 have u = 0.07, 0.40 and 0.92:

    >>> from genkit.testing import choose
    >>> logits = [0.0, 0.693, 1.099, 1.386]
    >>> [choose(Categorical(), logits, seed=seed) for seed in (5, 0, 4)]
    [0, 2, 3]
    """

    type: Literal["categorical"] = "categorical"

    def bind(self, run: Run) -> InverseCdf:
        """The sampler with the purpose of its draws."""
        return InverseCdf(run.purpose)


class InverseCdf(Rowless):
    """The draw of `categorical`; `purpose` names it among the draws of a step."""

    def __init__(self, purpose: str) -> None:
        super().__init__("categorical")
        self.purpose = purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        probs = logits.softmax(-1, dtype=torch.float64)
        return inverse_cdf(probs, state.rng.uniform(self.purpose))


def inverse_cdf(masses: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The first id of each row whose running mass exceeds `uniform` times the total.

    Args:
        masses: what each token has, float64 `[batch, vocab]`; a row need not sum to 1.
        uniform: one number in [0, 1) a row, float64 `[batch]`.

    Returns:
        int64 `[batch]`; -1 where the masses of a row are NaN.
    """
    running = masses.cumsum(-1)
    total = running.select(-1, -1)
    # u is at most 1 - 2**-53, so u * total is below total also when rounded: some running mass
    # exceeds it, and the first that does belongs to a token of positive probability.
    ids = torch.searchsorted(running, (uniform * total).unsqueeze(-1), right=True).squeeze(-1)
    # An empty row and one with NaN or +inf have no total; the loop finds out why.
    return ids.masked_fill_(total.isnan(), -1)
