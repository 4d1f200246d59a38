"""How nearly each decision of a sampler could have gone another way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from genkit.components.samplers import Categorical, Greedy
from genkit.core.random import RowRandom
from genkit.testing.laws.trace import Trace

Margin = Callable[[Trace, int], float]
"""The margin of a step of a trace."""


def margin_of(sampler: Any) -> Margin | None:
    """The margin of the decisions of a sampler; None for one that we do not know.

    A margin is comparable with a logit error: where two runs decide differently and their logits
    differ by at most `e`, one of the two margins is at most `e`.
    """
    if isinstance(sampler, Greedy):
        return lead
    if isinstance(sampler, Categorical):
        return distance_to_edge
    return None


def lead(trace: Trace, step: int) -> float:
    """By how much the largest logit exceeds the second."""
    logits = trace.logits[step]
    if len(logits) < 2:
        return math.inf
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


def distance_to_edge(trace: Trace, step: int) -> float:
    """How far the number drawn is from the nearer edge of the chosen token's interval.

    An edge at probability c moves by at most ``2 e c (1 - c) <= e / 2`` when every logit moves by
    at most a small `e`.
    """
    running = trace.logits[step].softmax(-1, dtype=torch.float64).cumsum(-1)
    total = float(running[-1])
    drawn = _number_drawn(trace.seed, step)
    chosen = trace.ids[step]
    upper = float(running[chosen]) / total
    lower = float(running[chosen - 1]) / total if chosen else 0.0
    # The ends of the whole line are no edges: nothing lies beyond them.
    return min(
        upper - drawn if upper < 1 else math.inf,
        drawn - lower if lower > 0 else math.inf,
    )


@lru_cache(maxsize=1024)
def _number_drawn(seed: int, step: int) -> float:
    """What the first `categorical` of a pipeline draws for the first sample of a prompt."""
    rng = RowRandom([seed], [0])
    rng.step = step
    return float(rng.uniform("categorical:0"))
