"""The laws of stop criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from genkit.errors import FAILURES
from genkit.testing.laws.history import History
from genkit.testing.laws.part import (
    Evidence,
    PartLaw,
    not_promised,
    runs_without_an_error,
    shared_laws,
)
from genkit.testing.laws.rehearsal import PartFailed, Rehearsal, bind
from genkit.text.stream import Detokenizer
from genkit.text.transcript import TextStream

__all__ = ["ENDS_BY_A_FAR_BOUND", "STOP_CRITERION_LAWS"]

_NO_REPORT = not_promised("it has no `report`")
_NO_TEXT = "there is no tokenizer"
_REPORTED = {"matched", "position", "text_end"}
# A bound is tried by going there, step by step; what lies further off than that many is believed.
_NEAR, _FARTHEST = 300, 20_000


def gives_one_mark_a_row(part: Any, history: History) -> Evidence:
    """The answer is bool `[batch]`, on the device of the state."""
    rehearsal = Rehearsal("stop_criterion", part, history)
    for step in range(history.num_steps):
        marks = rehearsal.go()
        if marks.dtype != torch.bool or marks.device != rehearsal.state.device:
            yield f"step {step}: returned {marks.dtype} on {marks.device}, not bool"


def ends_by_its_bound(part: Any, history: History, farthest: int) -> Evidence:
    """Where it states a bound, it has ended a row that has as many tokens.

    A row generates one token at least, however long its prompt is. A bound that leaves room for
    more than `farthest` tokens is believed.
    """
    bound = getattr(part, "bound", lambda num_prompt_tokens: None)
    is_stated = False
    for row in history.rows:
        try:
            most = bound(len(row.prompt))
        except FAILURES as error:
            what = f"raised {type(error).__name__}: {error} in `bound({len(row.prompt)})`"
            raise PartFailed(what) from error
        if most is None:
            continue
        is_stated = True
        if not isinstance(most, int):
            yield f"`bound({len(row.prompt)})` is {most!r}, neither a whole number nor None"
        num_steps = max(1, int(most) - len(row.prompt))
        if num_steps > farthest:
            continue
        rehearsal = Rehearsal("stop_criterion", part, history.of([row.lengthened(num_steps)]))
        if not any(bool(rehearsal.go()) for _ in range(num_steps)):
            yield (
                f"`bound({len(row.prompt)})` is {most}, and a row with a prompt of "
                f"{len(row.prompt)} goes on beyond {len(row.prompt) + num_steps} tokens"
            )
    return None if is_stated else not_promised("it states no `bound`")


def reports_what_is_there(part: Any, history: History) -> Evidence:
    """The report of a row that ends names what can be found where it says."""
    if not _has(part, history, "report"):
        return _NO_REPORT
    for i, step, rehearsal in _endings(part, history):
        report = rehearsal.bound.report(rehearsal.state, i)
        where = f"row {i}, step {step}"
        if not isinstance(report, Mapping) or set(report) - _REPORTED:
            yield f"{where}: the report is {report!r}; its keys may be {sorted(_REPORTED)}"
            return
        matched, position = report.get("matched"), report.get("position")
        generated = list(history.rows[i].token_ids[: step + 1])
        if isinstance(matched, int) and generated[slice(position, None)][:1] != [matched]:
            yield f"{where}: the report {report!r} does not fit the ids {generated}"
        if history.tokenizer is None:
            continue
        text = "".join(_pieces(history, i, step + 1))
        text_end = report.get("text_end")
        if text_end is not None and not 0 <= text_end <= len(text):
            yield f"{where}: the report {report!r} does not fit the text {text!r}"
        if isinstance(matched, str) and not text.startswith(matched, position or 0):
            yield f"{where}: the report {report!r} does not fit the text {text!r}"


def shows_nothing_that_it_cuts(part: Any, history: History) -> Evidence:
    """`held_back` keeps from a stream what the report may cut away later."""
    if not _has(part, history, "report"):
        return _NO_REPORT
    if history.tokenizer is None:
        return _NO_TEXT
    for i, step, rehearsal in _endings(part, history):
        count = getattr(rehearsal.bound, "held_back", None)
        held_back = [] if count is None else [count]
        stream = TextStream(_detokenizer(history), held_back)
        ids = history.rows[i].token_ids[:step]
        shown = "".join(stream.push(token_id) for token_id in ids)
        text_end = rehearsal.bound.report(rehearsal.state, i).get("text_end")
        if text_end is not None and len(shown) > text_end:
            yield (
                f"row {i}, step {step}: {shown!r} has been shown, and the text ends at {text_end}"
            )


def holds_back_what_there_is(part: Any, history: History) -> Evidence:
    """`held_back` is a number of letters that the text has."""
    if not _has(part, history, "held_back"):
        return not_promised("it has no `held_back`")
    if history.tokenizer is None:
        return _NO_TEXT
    count = bind("stop_criterion", part, history).held_back
    for i in range(len(history)):
        text = "".join(_pieces(history, i, history.num_steps))
        for size in range(len(text) + 1):
            held = count(text[:size])
            if not isinstance(held, int) or not 0 <= held <= size:
                yield f"`held_back({text[:size]!r})` is {held!r}"


def _has(part: Any, history: History, attribute: str) -> bool:
    """Whether the callable of a part for these rows has an attribute."""
    return hasattr(bind("stop_criterion", part, history), attribute)


def _endings(part: Any, history: History) -> Iterator[tuple[int, int, Rehearsal]]:
    """Row and step of each row when it ends; the report on it is to be asked for at once."""
    rehearsal = Rehearsal("stop_criterion", part, history)
    ended: set[int] = set()
    for step in range(history.num_steps):
        for i in rehearsal.go().nonzero()[:, 0].tolist():
            if i not in ended:
                ended.add(i)
                yield i, step, rehearsal


def _pieces(history: History, i: int, num_tokens: int) -> Iterator[str]:
    """What the first tokens that a row has generated add to its text."""
    stream = _detokenizer(history)
    yield from map(stream.push, history.rows[i].token_ids[:num_tokens])


def _detokenizer(history: History) -> Detokenizer:
    assert history.tokenizer is not None  # asked for by laws that have looked
    hidden = history.tokenizer.special_token_ids | history.eos_token_ids
    return Detokenizer(history.tokenizer, hidden)


STOP_CRITERION_LAWS: tuple[PartLaw, ...] = (
    PartLaw(runs_without_an_error, "stop_criterion"),
    PartLaw(gives_one_mark_a_row),
    PartLaw(ends_by_its_bound, _NEAR),
    PartLaw(reports_what_is_there),
    PartLaw(shows_nothing_that_it_cuts),
    PartLaw(holds_back_what_there_is),
    *shared_laws("stop_criterion"),
)
"""Every law of a stop criterion; ``law(part, history)`` raises `LawBroken`."""

ENDS_BY_A_FAR_BOUND = PartLaw(ends_by_its_bound, _FARTHEST)
"""The law of bounds for those that take long to try; once for each criterion is enough."""
