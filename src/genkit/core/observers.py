"""Who watches a run: objects or modules with some of four functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol

from genkit.core.contracts import name_of
from genkit.core.result import Result, Step, Steps
from genkit.core.run import Run
from genkit.errors import PartError


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
    see_step = _functions(observers, "genkit_step")
    try:
        with closing(steps):
            _notify(observers, "genkit_run_started", run)
            for step in steps:
                record.add(step)
                for see in see_step:
                    see(run, step)
                yield step
        _notify(observers, "genkit_run_finished", run, record.results())
    except GeneratorExit:
        _notify(observers, "genkit_run_finished", run, record.results())
        raise
    except BaseException as error:
        unfinished = "error" if isinstance(error, Exception) else "cancelled"
        error.partial_results = record.results(unfinished)  # type: ignore[attr-defined]
        _notify_of_failure(observers, run, error)
        raise


def _notify_of_failure(observers: Sequence[Any], run: Run, error: BaseException) -> None:
    """Tell everybody; what goes wrong in telling must not hide what went wrong in the run."""
    for function in _functions(observers, "genkit_run_failed"):
        try:
            function(run, error)
        except PartError as second:
            error.add_note(str(second))


def _functions(observers: Sequence[Any], name: str) -> list[Callable[..., None]]:
    functions = ((observer, getattr(observer, name, None)) for observer in observers)
    return [
        _naming(observer, name, function)
        for observer, function in functions
        if function is not None
    ]


def _naming(observer: Any, hook: str, function: Callable[..., None]) -> Callable[..., None]:
    """The same function; what it raises names the observer."""

    def call(*arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            what = f"raised {type(error).__name__} in {hook}: {error}"
            raise PartError(f"the observer {name_of(observer)!r} {what}") from error

    return call


def _notify(observers: Sequence[Any], name: str, *arguments: Any) -> None:
    for function in _functions(observers, name):
        function(*arguments)
