"""The laws of observers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from genkit.components.samplers import Categorical
from genkit.core.hooks import OBSERVATION_HOOKS, works_later
from genkit.core.result import Step
from genkit.core.state import GenerationState
from genkit.errors import FAILURES
from genkit.pipeline import Pipeline
from genkit.testing.laws.admission import refuse_class
from genkit.testing.laws.faults import Fault
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.tiny_model import TinyModel

__all__ = ["OBSERVER_LAWS", "broken_by_observer", "check_observer"]

OBSERVER_LAWS = {
    "has a function": "it has one of the four functions of an observer at least",
    "works when it is called": "none of its functions is an `async def`, or has a `yield`",
    "runs without an error": "a run that it watches ends as one that nobody watches",
    "changes nothing": "the steps of a run that it watches are those of one that nobody watches",
    "lets a run fail": "a run that fails does so with the same error and partial results",
    "begins anew": "after a run that has failed, the next has the steps that it would have had",
}
"""Every law of an observer, by its name, and what it says."""

_NUM_STEPS = 12
_FAILS_AT = 5
_FIELDS = ("raw_logits", "logits", "next_ids", "rows", "stops")


def check_observer(part: Any) -> None:
    """Hold an observer to what a pipeline asks of it.

    It has one of the four functions at least, and the steps of a run that it watches are those of
    one that nobody watches, whether the run ends, fails, or comes after one that has failed.

    Args:
        part: the observer; runs of a small model are shown to it.

    Raises:
        LawBroken: it does something else.
        TypeError: `part` is a class.
    """
    refuse_class(part)
    for broken in broken_by_observer(part):
        raise broken


def broken_by_observer(part: Any) -> Iterator[LawBroken]:
    """Each time that an observer breaks a law; what raises ends it.

    Args:
        part: as for `check_observer`.
    """
    if not any(callable(getattr(part, name, None)) for name in OBSERVATION_HOOKS):
        yield LawBroken("has a function", part, f"it has none of {', '.join(OBSERVATION_HOOKS)}")
        return
    how = {hook: works_later(getattr(part, hook, None)) for hook in OBSERVATION_HOOKS}
    later = [f"{hook} is {words}" for hook, words in how.items() if words]
    if later:
        yield LawBroken("works when it is called", part, "; ".join(later))
        return
    try:
        watched = _steps([part])
    except FAILURES as error:
        yield LawBroken("runs without an error", part, _raised(error))
        return
    for what in _different(_steps([]), watched):
        yield LawBroken("changes nothing", part, what)
    expected, found = _failure([]), _failure([part])
    if found != expected:
        yield LawBroken("lets a run fail", part, f"it ended with {found}, not with {expected}")
    try:
        for what in _different(watched, _steps([part])):
            yield LawBroken("begins anew", part, what)
    except FAILURES as error:
        yield LawBroken("begins anew", part, _raised(error))


def _different(expected: list[Step], watched: list[Step]) -> Iterator[str]:
    """Where the steps of a run are not those of another."""
    for step, (other, seen) in enumerate(zip(expected, watched, strict=True)):
        for name in _FIELDS:
            if not _are_same(getattr(other, name), getattr(seen, name)):
                yield f"step {step}: it changed `{name}`"


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _steps(observers: list[Any], *stop_criteria: Any) -> list[Step]:
    """The steps of a run."""
    pipeline = Pipeline(
        TinyModel(), sampler=Categorical(), stop_criteria=stop_criteria, observers=observers
    )
    return list(pipeline.decode([[3, 1], [4], [5, 9, 2]], seed=7, max_new_tokens=_NUM_STEPS))


def _failure(observers: list[Any]) -> str:
    """What a run that fails in its midst ends with: the error, its notes and partial results."""
    try:
        _steps(observers, _fails)
    except FAILURES as error:
        notes = getattr(error, "__notes__", [])
        results = [result.token_ids for result in getattr(error, "partial_results", [])]
        return "; ".join([_text(error), *notes, f"partial results {results}"])
    return "no error"


def _fails(state: GenerationState) -> torch.Tensor:
    """A stop criterion that fails in the midst of a run."""
    if state.most_generated > _FAILS_AT:
        raise Fault("this run fails on purpose")
    return state.finished


def _raised(error: BaseException) -> str:
    return f"raised {_text(error)}"


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
