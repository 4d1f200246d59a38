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
from itertools import takewhile
from typing import Any

import numpy as np
import torch

from genkit.components.base import Component
from genkit.components.candidates import Candidates, Row, rows_of
from genkit.components.ranked import ROUNDING, Ranked, is_clear_of
from genkit.components.samplers.categorical import InverseCdf
from genkit.core.binding import BoundParts
from genkit.core.contracts import LogitsProcessor, Sampler, label_of
from genkit.core.guard import unguarded
from genkit.core.state import GenerationState
from genkit.errors import FAILURES, PartError


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
    first = next((i for i in range(begin, len(chain)) if _narrows(chain[i])), None)
    if first is None:
        return bound
    divisor = _divisor(chain[first - 1]) if first > begin else None
    before = first if divisor is None else first - 1  # a temperature is for candidates only, too
    truncations = FastTruncations(bound.processors[first:], bound.processors[before:], divisor or 1)
    return replace(
        bound,
        processors=[*bound.processors[:before], truncations],
        sampler=FastDraw(truncations, bound.sampler),
    )


def _narrows(part: Any) -> bool:
    return _defines(part, "narrow") and _defines(part, "shorten")


def _divisor(part: Any) -> float | None:
    return part.divisor if _defines(part, "divisor") else None


def _defines(part: Any, name: str) -> bool:
    """Whether a class says something of its own `__call__`, and not of an inherited one."""
    for owner in type(part).__mro__:
        if "__call__" in vars(owner):
            return name in vars(owner)
    return False


class FastTruncations:
    """Truncations one after the other, on candidates that the first of them finds.

    Args:
        parts: the truncations, guarded.
        plain: the same ones, and the temperature before them.
        divisor: that temperature, or 1.

    Attributes:
        stands_for: what the loop would call in its place; where a step fails, one of these is to
            blame.
    """

    name = "fast_truncations"

    def __init__(
        self, parts: Sequence[Any], plain: Sequence[LogitsProcessor], divisor: float = 1.0
    ) -> None:
        # Those that keep the first tokens of one order need it once; the rest get what is left.
        parts_alone = [unguarded(part) for part in parts]
        ranked = list(takewhile(_narrows, parts_alone))
        self._others = parts[len(ranked) :]
        # The second one may find fewer candidates for both: the first then keeps all of these, or
        # some. A third one may not, since the second needs to know what the first has kept.
        quick = (part for part in ranked[:2] if not getattr(part, "needs_total", False))
        self._finder = next(quick, ranked[0])
        self._ranked = ranked
        self._divisor = divisor
        self.stands_for = plain
        self.candidates: list[Candidates | None] = []
        self.given: torch.Tensor | None = None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        given = np.ascontiguousarray(logits.detach().numpy())
        out = np.full(given.shape, -np.inf, given.dtype)
        with np.errstate(over="ignore"):  # -inf is what becomes of it
            rows = rows_of(given, self._divisor)
            self.candidates = [self._found(state, row) for row in rows]
        for i, (values, found) in enumerate(zip(out, self.candidates, strict=True)):
            if found is None:  # it takes the whole row to know
                values[:] = self._whole(state, logits[i : i + 1]).detach().numpy()[0]
            else:
                values[found.ids] = found.logits
        self.given = torch.from_numpy(out)
        return self.given

    def _found(self, state: GenerationState, row: Row) -> Candidates | None:
        """What is kept of a row."""
        if not -math.inf < row.largest < math.inf:
            return None
        found: Candidates | None = row.everything()
        if found is None:
            found = self._asked(state, self._finder, "narrow", row)
            # Where many are left, the search was in vain.
            if found is None or not 0 < 4 * len(found.ids) < row.size:
                return None
        ranked = Ranked(row, found)
        if not all(self._asked(state, part, "shorten", ranked) for part in self._ranked):
            return None
        found = ranked.kept()
        if self._others:
            kept = torch.from_numpy(found.logits)[None]
            for part in self._others:
                kept = part(state, kept)
            found = Candidates(found.ids, kept[0].numpy())
        return found

    def _asked(self, state: GenerationState, part: Any, method: str, about: object) -> Any:
        try:
            return getattr(part, method)(about)
        except FAILURES as error:
            what = f"raised {type(error).__name__} in `{method}`: {error}"
            label = next(label_of(each) for each in self.stands_for if unguarded(each) is part)
            raise PartError(f"step {int(state.num_generated[0])}: {label} {what}") from error

    def _whole(self, state: GenerationState, row: torch.Tensor) -> torch.Tensor:
        for processor in self.stands_for:
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
        numbers = state.rng.uniform(self._purpose).tolist()
        ids = [
            None if found is None else _draw(found, number)
            for found, number in zip(self._truncations.candidates, numbers, strict=True)
        ]
        if None in ids:
            return self._plain(state, logits)
        return torch.from_numpy(np.array(ids))

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row."""


def _draw(found: Candidates, number: float) -> int | None:
    """The id that a uniform number draws; None where it is too close to call."""
    logits = found.logits.astype(np.float64)
    largest = logits.max()
    if not -math.inf < largest < math.inf:
        return None
    running = np.exp(logits - largest).cumsum()
    total = running[-1]
    place = int(running.searchsorted(number * total, "right"))
    if not is_clear_of(running, place, number * total, ROUNDING * total):
        return None
    return int(found.ids[place])
