"""Who watches a run: objects or modules with some of four functions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

from genkit.core.contracts import name_of
from genkit.core.failure import where_it_was_raised
from genkit.core.hooks import OBSERVATION_HOOKS, works_later
from genkit.core.result import Result, Step, Steps
from genkit.core.run import Run
from genkit.errors import FAILURES, PartError, UnsupportedError

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """The four functions; an observer has any of them. They return nothing."""

    def genkit_run_started(self, run: Run) -> None:
        """A run begins: prompts, seeds and limits are known, nothing has been computed."""

    def genkit_step(self, run: Run, step: Step) -> None:
        """One token for each unfinished row has been chosen."""

    def genkit_run_finished(self, run: Run, result: list[Result]) -> None:
        """The run is over, or nobody wants more of it; one result for each row."""

    def genkit_run_failed(self, run: Run, error: BaseException) -> None:
        """The run failed or was interrupted; `error.partial_results` has what there was."""


def check_observers(observers: Sequence[Any]) -> None:
    """Refuse what would watch nothing.

    Raises:
        UnsupportedError: a class, an object without any of the functions, or with one whose call
            does nothing yet.
    """
    for i, observer in enumerate(observers):
        if isinstance(observer, type):
            name = observer.__name__
            raise UnsupportedError(f"observers.{i} is a class; make an object of it: {name}(...)")
        found = {hook: getattr(observer, hook, None) for hook in OBSERVATION_HOOKS}
        if not any(map(callable, found.values())):
            raise UnsupportedError(
                f"observers.{i} is {observer!r}, which watches nothing: an observer has one at "
                f"least of the functions {', '.join(found)}"
            )
        for hook, function in found.items():
            if how := works_later(function):
                raise UnsupportedError(
                    f"observers.{i} ({name_of(observer)}): {hook} is {how}, so that calling it "
                    "does nothing; write a plain function"
                )


class Record(Protocol):
    """Where steps are taken down."""

    run: Run

    def add(self, step: Step) -> None:
        """Take down one step."""

    def results(self, unfinished: str = "cancelled") -> list[Result]:
        """What has been taken down, as one result for each row."""


def watched(steps: Steps, record: Record, observers: Sequence[Any]) -> Steps:
    """The same steps: each is taken down and shown to the observers before it is passed on.

    An exception leaves with `partial_results`.
    """
    run = record.run
    watchers = [_Watcher(observer) for observer in observers]
    see_step = [watcher for watcher in watchers if watcher.has("genkit_step")]
    index = -1
    try:
        with closing(steps):
            _tell(watchers, "genkit_run_started", run)
            for index, step in enumerate(steps):
                record.add(step)
                for watcher in see_step:
                    watcher.tell("genkit_step", run, step, where=f"step {index}: ")
                yield step
        _tell(watchers, "genkit_run_finished", run, record.results())
    except GeneratorExit:
        _tell(watchers, "genkit_run_finished", run, record.results())
        raise
    except BaseException as raised:
        error = where_it_was_raised(raised, index + 1)
        unfinished = "error" if isinstance(error, Exception) else "cancelled"
        error.partial_results = record.results(unfinished)  # type: ignore[attr-defined]
        for second in _told(watchers, "genkit_run_failed", run, error):
            error.add_note(str(second))  # it must not hide what went wrong in the run
        error.partial_results = record.results(unfinished)  # type: ignore[attr-defined]
        if error is raised:
            raise
        raise error from raised


class _Watcher:
    """An observer in one run.

    One that nobody asked for by name, as it came with an installed plugin, harms no run: if it
    raises, there is a warning, and it sees no more of the run. Its attribute `installed` says so.
    """

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.is_out = False

    def has(self, hook: str) -> bool:
        return getattr(self.observer, hook, None) is not None

    def tell(self, hook: str, *arguments: Any, where: str = "") -> None:
        """Call a function of the observer, if it has it; what it raises names the observer.

        Raises:
            PartError: it raised.
        """
        if self.is_out or not self.has(hook):
            return
        try:
            getattr(self.observer, hook)(*arguments)
        except FAILURES as error:
            what = f"raised {type(error).__name__} in {hook}: {error}"
            message = f"{where}the observer {name_of(self.observer)!r} {what}"
            if not getattr(self.observer, "installed", False):
                raise PartError(message) from error
            self.is_out = True
            logger.warning("%s; it sees no more of this run", message)


def _tell(watchers: Sequence[_Watcher], hook: str, *arguments: Any) -> None:
    """Tell all of them; then raise what the first of them raised."""
    errors = _told(watchers, hook, *arguments)
    for second in errors[1:]:
        errors[0].add_note(str(second))
    if errors:
        raise errors[0]


def _told(watchers: Sequence[_Watcher], hook: str, *arguments: Any) -> list[PartError]:
    """Tell all of them; what they raised."""
    errors = []
    for watcher in watchers:
        try:
            watcher.tell(hook, *map(_own, arguments))
        except PartError as error:
            errors.append(error)
    return errors


def _own(argument: Any) -> Any:
    """Lists of results are copied: what one observer does to them, no other one sees."""
    if not isinstance(argument, list):
        return argument
    return [
        replace(each, token_ids=list(each.token_ids), prompt_ids=list(each.prompt_ids))
        for each in argument
    ]
