"""The laws of observers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from genkit.components.samplers import Categorical
from genkit.core.result import Step
from genkit.errors import FAILURES
from genkit.pipeline import Pipeline
from genkit.testing.laws.admission import refuse_class
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.tiny_model import TinyModel

__all__ = ["OBSERVER_LAWS", "broken_by_observer", "check_observer"]

OBSERVER_LAWS = {
    "has a function": "it has one of the four functions of an observer at least",
    "runs without an error": "a run that it watches ends as one that nobody watches",
    "changes nothing": "the steps of a run that it watches are those of one that nobody watches",
}
"""Every law of an observer, by its name, and what it says."""

_FUNCTIONS = ("genkit_run_started", "genkit_step", "genkit_run_finished", "genkit_run_failed")
_NUM_STEPS = 12
_TENSORS = ("raw_logits", "logits", "next_ids", "rows")


def check_observer(part: Any) -> None:
    """Hold an observer to what a pipeline asks of it.

    It has one of the four functions at least, and the steps of a run that it watches are those of
    one that nobody watches.

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
    if not any(callable(getattr(part, name, None)) for name in _FUNCTIONS):
        yield LawBroken("has a function", part, f"it has none of {', '.join(_FUNCTIONS)}")
    unwatched = _steps([])
    try:
        watched = _steps([part])
    except FAILURES as error:
        words = f"raised {type(error).__name__}: {error}"
        yield LawBroken("runs without an error", part, words)
        return
    for step, (unseen, seen) in enumerate(zip(unwatched, watched, strict=True)):
        for name in _TENSORS:
            if not torch.equal(getattr(unseen, name), getattr(seen, name)):
                yield LawBroken("changes nothing", part, f"step {step}: it wrote into `{name}`")


def _steps(observers: list[Any]) -> list[Step]:
    """The steps of a run that ends."""
    pipeline = Pipeline(TinyModel(), sampler=Categorical(), stop_criteria=[], observers=observers)
    return list(pipeline.decode([[3, 1], [4], [5, 9, 2]], seed=7, max_new_tokens=_NUM_STEPS))
