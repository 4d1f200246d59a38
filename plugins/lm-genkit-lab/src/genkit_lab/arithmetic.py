"""Samples of one prompt that are spread over all that the model may say."""

from collections.abc import Sequence
from random import Random
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import Sampler
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import InputError


class Arithmetic(Sampler):
    """Draws samples of one prompt that differ as much as they can.

    All texts share the interval from 0 to 1 by probability. Sample i of n is the text at its code
    ``(b + (i + 1) / (n + 1)) mod 1``, where b is the seed's. A step takes the token whose part
    holds the code, and goes on with ``(code - begin) / p``; spent bits are drawn. ("Arithmetic
    Sampling: Parallel Diverse Decoding for Large Language Models", Vilnis et al. 2023, 2210.15458.)

    Seed 1 has b = 0.55. One sample is at 1.05 mod 1, the first of three at 0.80:

    >>> from genkit.testing import choose
    >>> [choose(Arithmetic(num_samples=n), [0.0, 0.0, 0.0, 0.0], seed=1) for n in (1, 3)]
    [0, 3]
    """

    type: Literal["arithmetic"] = "arithmetic"
    num_samples: int = Field(ge=1, examples=[4], description="n: as many as are asked for")

    def bind(self, run: Run) -> "Codes":
        """The sampler with the code of each row."""
        if (found := max(run.samples) + 1) > (n := self.num_samples):
            raise InputError(f"arithmetic: {found} samples are asked for; num_samples is {n}")
        rows = zip(run.seeds, run.samples, strict=True)
        codes = [Random(f"{run.purpose} {seed}").random() + (i + 1) / (n + 1) for seed, i in rows]
        return Codes(torch.tensor(codes, dtype=torch.float64, device=run.device) % 1, run.purpose)


class Codes:
    """The sampler of a run: the code of each row, float64 `[batch]`, and the name of its draws."""

    def __init__(self, codes: torch.Tensor, purpose: str) -> None:
        self.codes, self.purpose = codes, purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        edges = torch.nn.functional.pad(logits.double().softmax(-1).cumsum(-1), (1, 0))
        aim = self.codes[:, None] * edges[:, -1:]
        ids = torch.searchsorted(edges, aim, right=True).clamp(max=logits.shape[1]) - 1
        begin, end = edges.gather(1, ids), edges.gather(1, ids + 1)
        bits = state.rng.uniform(self.purpose)[:, None] * 2**-53
        self.codes = ((aim - begin + bits) / (end - begin))[:, 0].clamp(max=1 - 2**-53)
        return ids[:, 0].masked_fill(edges[:, -1].isnan(), -1)

    def reorder(self, indices: Sequence[int]) -> None:
        self.codes = self.codes[list(indices)]
