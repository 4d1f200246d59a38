"""Cache managers against one plain forward pass of the bare module, row by row and step by step.

A *cell* is a batch whose rows are beginnings of one long text, of lengths that follow each other,
so that its rows have all numbers of pads from 0 to 33. It is fed, and then goes on with the tokens
that the text has. So one forward pass over the text is the reference of all rows, steps, cells and
managers. A lossy manager has itself as the reference, with the row alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import zoo
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState

NUM_ROWS = 34
STEPS = 6
TOLERANCE = 1e-4
"""Of the largest logit of the row, or of 1 where that is smaller."""


@dataclass
class Tally:
    """What has been compared.

    Attributes:
        combinations: rows of cells; in each of them the architecture, the manager, the length, the
            number of pads or the way of feeding is another one.
        decisions: greedy choices compared, one a row and step.
        excused: choices that differ where the reference's margin is less than the error.
        worst: the largest error, in tolerances.
    """

    combinations: int = 0
    decisions: int = 0
    excused: int = 0
    worst: float = 0.0

    def compare(self, given: torch.Tensor, wanted: torch.Tensor, where: str) -> None:
        """Logits `[rows, vocab]` of one step: equal within the tolerance, and the same choice."""
        errors = (given - wanted).abs().amax(1)
        tolerances = TOLERANCE * wanted.abs().amax(1).clamp(min=1.0)
        worst, row = (errors / tolerances).max(0)
        assert worst <= 1.0, f"{where}: row {row} is off by {worst:.3g} tolerances"
        best, second = wanted.topk(2).values.T
        differ = given.argmax(1) != wanted.argmax(1)
        unexcused = differ & (best - second > 2 * errors)
        assert not unexcused.any(), f"{where}: another choice in rows {unexcused.nonzero()[:, 0]}"
        self.worst = max(self.worst, float(worst))
        self.decisions += len(differ)
        self.excused += int(differ.sum())


def sweep_cell(
    name: str,
    manager: Any,
    lengths: Sequence[int],
    tally: Tally,
    *,
    pieces: Sequence[int] = (),
    moving: bool = False,
) -> None:
    """Feed a batch of rows of these lengths, and compare the logits of every step.

    Args:
        name: the architecture.
        manager: hands out the cache.
        lengths: the tokens of each row at the beginning.
        tally: counts what was compared.
        pieces: how many columns are fed at a time at first; what is left follows at once.
        moving: whether the cache is cut back, and rows are dropped, repeated and permuted.
    """
    lossy = manager.grade == "lossy"
    model = _model(name, manager)
    ids, logits = text_of(name)
    state = start(ids, lengths)
    ends = torch.tensor(lengths)
    cache = manager.acquire(model, state)
    try:
        for n in pieces:
            if cache.length + n < state.length:
                model(state.token_ids[:, cache.length : cache.length + n], cache)
        for step in range(STEPS):
            given = model(state.since(cache.length), cache)
            wanted = logits[ends - 1]
            if lossy:
                wanted = torch.stack([_alone(name, manager, n - step)[step] for n in ends.tolist()])
            where = f"{name}, {manager.type}, lengths {lengths}, {pieces=}, {moving=}, {step=}"
            tally.compare(given, wanted, where)
            if step == STEPS - 1:
                break
            state.append(ids[ends])
            ends = ends + 1
            if moving and step == 1 and not lossy:  # fed again at once they would be rounded later
                cache.crop(max(0, cache.length - 5))
            if moving and step == 3:
                order = [len(ends) - 1, 0, *[len(ends) // 2] * 2, *range(1, len(ends) - 1, 3)]
                state.reorder(order)
                cache.reorder(order)
                ends = ends[order]
    finally:
        manager.release(cache, state)
    tally.combinations += len(lengths)


@functools.cache
def text_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A text, `[tokens]`, and the logits after each of its tokens, `[tokens, vocab]`."""
    model = zoo.shared(name)
    ids = torch.tensor(zoo.prompt(min(model.context_length or 176, 176)))
    with torch.no_grad():
        return ids, model.module(ids[None], use_cache=False).logits[0]


def _model(name: str, manager: Any) -> Any:
    """In float64 a rounding error turns no number that a lossy manager rounds into another one."""
    return zoo.shared(name, torch.float64 if manager.grade == "lossy" else torch.float32)


def start(ids: torch.Tensor, lengths: Sequence[int], steps: int = STEPS) -> GenerationState:
    """Rows of the first tokens of `ids`, with room for `steps` more."""
    rng = RowRandom([0] * len(lengths), [0] * len(lengths))
    return GenerationState([ids[:n].tolist() for n in lengths], [n + steps for n in lengths], rng)


@functools.cache
def _alone(name: str, manager: Any, num_tokens: int) -> list[torch.Tensor]:
    """The logits of each step that a manager gives for a row alone."""
    model = _model(name, manager)
    ids, _ = text_of(name)
    state = start(ids, [num_tokens])
    cache = manager.acquire(model, state)
    steps = []
    for step in range(STEPS):
        steps.append(model(state.since(cache.length), cache)[0])
        state.append(ids[num_tokens + step, None])
    manager.release(cache, state)
    return steps
