"""The laws of logits processors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import pad

from genkit.testing.laws.history import History
from genkit.testing.laws.part import (
    Evidence,
    PartLaw,
    difference,
    not_promised,
    played,
    runs_without_an_error,
    shared_laws,
    tolerance_of,
)
from genkit.testing.laws.rehearsal import Rehearsal, play

__all__ = ["PROCESSOR_LAWS"]

# A value so far below every logit there was, that does not move with them, is meant to forbid.
_FAR_BELOW = 1e3


def keeps_shape_dtype_and_device(part: Any, history: History) -> Evidence:
    """The answer has shape, dtype and device of the logits."""
    rehearsal = Rehearsal("logits_processor", part, history)
    for step in range(history.num_steps):
        answer = rehearsal.go()
        given = rehearsal.given
        if answer.dtype != given.dtype or answer.device != given.device:
            yield (
                f"step {step}: returned {answer.dtype} on {answer.device}, "
                f"but was given {given.dtype} on {given.device}"
            )


def forbids_with_minus_infinity(part: Any, history: History) -> Evidence:
    """The answer has neither NaN nor +inf, and no finite value that is meant to forbid."""
    moved = history.of([replace(row, logits=row.logits * 0.5 + 0.3) for row in history.rows])
    stages = zip(_stages(part, history), play("logits_processor", part, moved), strict=True)
    for step, ((given, answer), answer_moved) in enumerate(stages):
        for i, (before, after) in enumerate(zip(given, answer, strict=True)):
            for token_id in (after.isnan() | (after == math.inf)).nonzero()[:, 0].tolist():
                yield f"{_at(i, step, token_id)} has {after[token_id].item()}"
            for token_id in _floored(before, after, answer_moved[i]).nonzero()[:, 0].tolist():
                low = after[token_id].item()
                yield f"{_at(i, step, token_id)} has the finite floor {low}; forbid with -inf"


def _floored(before: torch.Tensor, after: torch.Tensor, after_moved: torch.Tensor) -> torch.Tensor:
    """Which tokens have got a finite value that is meant to forbid them, bool `[vocab]`.

    Args:
        before, after: the logits before and after the part.
        after_moved: what the part made of logits all of which had been changed, in the same order.
    """
    allowed = before[before.isfinite()]
    if not len(allowed):
        return torch.zeros_like(before, dtype=torch.bool)
    return after.isfinite() & (after < allowed.min() - _FAR_BELOW) & (after == after_moved)


def revives_nothing(part: Any, history: History) -> Evidence:
    """What is forbidden stays so, unless the part has `may_allow`."""
    if getattr(part, "may_allow", False):
        return not_promised("it has `may_allow`")
    for step, (given, answer) in enumerate(_stages(part, history)):
        for i, token_id in ((given == -math.inf) & (answer != -math.inf)).nonzero().tolist():
            found = answer[i, token_id].item()
            yield (
                f"{_at(i, step, token_id)} was forbidden and has {found}; a part that is meant to "
                "do that has `may_allow = True`"
            )


def empties_no_row(part: Any, history: History) -> Evidence:
    """A row that has allowed tokens keeps one, unless the part has `may_empty`."""
    if getattr(part, "may_empty", False):
        return not_promised("it has `may_empty`")
    for step, (given, answer) in enumerate(_stages(part, history)):
        emptied = given.isfinite().any(-1) & (answer == -math.inf).all(-1)
        for i in emptied.nonzero()[:, 0].tolist():
            count = int(given[i].isfinite().sum())
            yield (
                f"row {i}, step {step}: all of {count} allowed tokens forbidden; a part that is "
                "meant to do that has `may_empty = True`"
            )


def leaves_empty_rows(part: Any, history: History) -> Evidence:
    """A row of which every token is forbidden stays so, and the others do not notice.

    A part that has `may_allow` may answer anything but NaN.
    """
    first, *others = history.rows
    empty = replace(first, logits=torch.full_like(first.logits, -math.inf))
    may_allow = getattr(part, "may_allow", False)
    expected = played("logits_processor", part, history)
    answers = play("logits_processor", part, history.of([empty, *others]))
    for step, answer in enumerate(answers):
        allowed = answer[0].isnan() if may_allow else answer[0] != -math.inf
        for token_id in allowed.nonzero()[:, 0].tolist():
            found = answer[0, token_id].item()
            yield f"{_at(0, step, token_id)} of an empty row has {found}"
        for i in range(1, len(history)):
            what = difference(expected[step][i], answer[i], 1e-5)
            if what is not None:
                yield f"row {i}, step {step}, beside an empty row: {what}"


def keeps_the_argmax_it_promises(part: Any, history: History) -> Evidence:
    """With `keeps_argmax`, the first of the largest logits is among the largest afterwards."""
    if not getattr(part, "keeps_argmax", False):
        return not_promised("it has no `keeps_argmax`")
    for step, (given, answer) in enumerate(_stages(part, history)):
        for i in given.isfinite().any(-1).nonzero()[:, 0].tolist():
            token_id = int(given[i].argmax())
            if answer[i, token_id] < answer[i].max():
                yield (
                    f"{_at(i, step, token_id)} was the most probable; "
                    f"afterwards token {int(answer[i].argmax())} is"
                )


def gives_the_same_to_allowed_tokens_alone(part: Any, history: History) -> Evidence:
    """With `acts_on_allowed`, allowed tokens get the same where none but they are given.

    They come in the order of ids, and -inf follows them where other rows have more. `narrow` and
    `shorten` of a part need it.
    """
    if not getattr(part, "acts_on_allowed", False):
        for name in ("narrow", "shorten"):
            if hasattr(part, name):
                yield f"it has `{name}`, and not `acts_on_allowed = True`, which that needs"
        return not_promised("it has no `acts_on_allowed`")
    for num_pads in (0, 2):
        whole, alone = (Rehearsal("logits_processor", part, history) for _ in range(2))
        for step in range(history.num_steps):
            given = _with_holes(history.logits(step))
            order = _allowed_first(given)
            few = pad(given.gather(-1, order), (0, num_pads), value=-math.inf)
            expected, answer = whole.go(given), alone.go(few)[:, : order.shape[1]]
            found = torch.full_like(expected, -math.inf).scatter(-1, order, answer)
            for i in range(len(history)):
                what = difference(expected[i], found[i], tolerance_of(expected))
                if what is not None:
                    yield f"row {i}, step {step}, its allowed tokens given alone: {what}"


def _with_holes(logits: torch.Tensor) -> torch.Tensor:
    """The logits with one token of each three forbidden, where that leaves one."""
    thirds = torch.arange(logits.shape[-1], device=logits.device) % 3 == 1
    fewer = logits.masked_fill(thirds, -math.inf)
    return torch.where((fewer > -math.inf).any(-1, keepdim=True), fewer, logits)


def _allowed_first(logits: torch.Tensor) -> torch.Tensor:
    """The ids of each row's allowed tokens in their order, and others where it has fewer."""
    allowed = logits > -math.inf
    most = max(1, int(allowed.sum(-1).max()))
    return (~allowed).sort(dim=-1, stable=True).indices[:, :most]


def _stages(part: Any, history: History) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The logits before and after the part, step by step."""
    answers = played("logits_processor", part, history)
    return [(history.logits(step), answer) for step, answer in enumerate(answers)]


def _at(row: int, step: int, token_id: int) -> str:
    return f"row {row}, step {step}: token {token_id}"


PROCESSOR_LAWS: tuple[PartLaw, ...] = (
    PartLaw(runs_without_an_error, "logits_processor"),
    PartLaw(keeps_shape_dtype_and_device),
    PartLaw(forbids_with_minus_infinity),
    PartLaw(revives_nothing),
    PartLaw(empties_no_row),
    PartLaw(keeps_the_argmax_it_promises),
    PartLaw(gives_the_same_to_allowed_tokens_alone),
    *shared_laws("logits_processor"),
    PartLaw(leaves_empty_rows),
)
"""Every law of a logits processor; ``law(part, history)`` raises `LawBroken`."""
