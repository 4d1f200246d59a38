"""Truncations and the draw on the few tokens that can still be chosen.

A truncation such as `top_k` looks at a whole vocabulary to keep a handful of tokens, and what comes
after it would look at the whole vocabulary again. Here the first truncation of a run of them finds
its candidates without sorting a row, the parts after it get the candidates alone, and the sampler
draws among them. The plain chain is the twin: what cannot be decided on candidates it computes, and
the tokens are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from genkit.components.base import Component
from genkit.components.candidates import ROUNDING, Candidates, Row
from genkit.components.samplers.categorical import InverseCdf, inverse_cdf
from genkit.core.binding import BoundParts
from genkit.core.contracts import LogitsProcessor, Sampler
from genkit.core.guard import unguarded
from genkit.core.state import GenerationState


def collapsed(bound: BoundParts) -> BoundParts:
    """The parts of a run, with the truncations at the end of the chain and the draw in one.

    As they are where the sampler is another than `categorical`, where no truncation that can find
    candidates comes before it, and on another device than the CPU.
    """
    if type(unguarded(bound.sampler)) is not InverseCdf or bound.run.device.type != "cpu":
        return bound
    chain = [unguarded(processor) for processor in bound.processors]
    begin = len(chain)
    while begin and isinstance(chain[begin - 1], Component) and chain[begin - 1].acts_on_allowed:
        begin -= 1
    first = next((i for i in range(begin, len(chain)) if hasattr(chain[i], "narrow")), None)
    if first is None:
        return bound
    truncations = FastTruncations(chain[first:], bound.processors[first:])
    return replace(
        bound,
        processors=[*bound.processors[:first], truncations],
        sampler=FastDraw(truncations, bound.sampler),
    )


class FastTruncations:
    """Truncations one after the other; the first finds candidates.

    Args:
        parts: the truncations.
        plain: the same ones, as the loop would call them.
    """

    name = "fast_truncations"

    def __init__(self, parts: Sequence[Any], plain: Sequence[LogitsProcessor]) -> None:
        self._first, *self._others = parts
        self._plain = plain
        self.candidates: list[Candidates | None] = []
        self.given: torch.Tensor | None = None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        out = torch.full_like(logits, -math.inf)
        self.candidates = [self._narrow(state, row) for row in logits.split(1)]
        for i, found in enumerate(self.candidates):
            if found is None:
                out[i : i + 1] = self._whole(state, logits[i : i + 1])
            else:
                out[i].index_copy_(0, found.ids, found.logits[0])
        self.given = out
        return out

    def _narrow(self, state: GenerationState, logits: torch.Tensor) -> Candidates | None:
        """What the truncations keep of one row, `[1, vocab]`; None: it takes the whole row."""
        row = Row(logits)
        found = self._first.narrow(row) if math.isfinite(row.largest) else None
        if found is None:
            return None
        kept: torch.Tensor = found.logits
        for part in self._others:
            kept = part(state, kept)
        return Candidates(found.ids, kept)

    def _whole(self, state: GenerationState, row: torch.Tensor) -> torch.Tensor:
        for processor in self._plain:
            row = processor(state, row)
        return row

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row from step to step."""
        self.candidates, self.given = [], None


class FastDraw:
    """Draws among the candidates, as `categorical` draws among all tokens.

    Args:
        truncations: they have the candidates.
        plain: the sampler itself, for rows without candidates.
    """

    name = "categorical"

    def __init__(self, truncations: FastTruncations, plain: Sampler) -> None:
        self._truncations = truncations
        self._plain = plain
        self._purpose = unguarded(plain).purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        if logits is not self._truncations.given:
            return self._plain(state, logits)
        uniform = state.rng.uniform(self._purpose)
        ids = []
        for found, number in zip(self._truncations.candidates, uniform.split(1), strict=True):
            drawn = None if found is None else _draw(found, number)
            if drawn is None:
                return self._plain(state, logits)
            ids.append(drawn)
        return torch.cat(ids)

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row."""


def _draw(found: Candidates, uniform: torch.Tensor) -> torch.Tensor | None:
    """The id drawn, `[1]`; None where it is too close to call."""
    probs = found.logits.softmax(-1, dtype=torch.float64)
    running = probs.cumsum(-1)
    if not float((running - uniform * running[:, -1:]).abs_().amin()) > ROUNDING:
        return None
    return found.ids[inverse_cdf(probs, uniform)]
