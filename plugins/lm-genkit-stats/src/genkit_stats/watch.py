"""What an observer does in one run, and what keeps it from harming any."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from genkit import Result, Step
    from genkit.core.run import Run

_FAILURES = (Exception, SystemExit)  # what is called here may well call `sys.exit`

_logger = logging.getLogger("genkit.stats")  # below `genkit`: the command line shows its warnings


class Watch(Protocol):
    """One run that is being watched.

    Attributes:
        run: kept alive, so that its id names no other one.
    """

    run: Run

    def step(self, step: Step) -> None:
        """Take down a step."""

    def end(self, results: list[Result], error: BaseException | None) -> None:
        """The run is over, or has failed; whatever is open is closed, even if this raises."""

    def close(self) -> None:
        """Close whatever is open: a step has raised, and the rest of the run is not watched."""


class Watcher(ABC):
    """An observer with a watch of its own for each run.

    Whatever goes wrong with it harms no run, and no other observer: the first time there is a
    warning, and the run goes on without.
    """

    def __init__(self) -> None:
        self._open: dict[int, Watch] = {}  # by the id of the run
        self._warned = False

    @abstractmethod
    def watch(self, run: Run) -> Watch | None:
        """Begin to watch a run; None: nobody asks for it."""

    @abstractmethod
    def lost(self) -> str:
        """What there is none of where something goes wrong, in words."""

    def genkit_run_started(self, run: Run) -> None:
        """Begin to watch, if anybody asks for it."""
        self._harmless(self._begin, run)

    def genkit_step(self, run: Run, step: Step) -> None:
        """Take down a step."""
        watch = self._open.get(id(run))
        if watch is not None and not self._harmless(watch.step, step):
            del self._open[id(run)]
            self._harmless(watch.close)

    def genkit_run_finished(self, run: Run, result: list[Result]) -> None:
        """Close what is open."""
        self._end(run, result, None)

    def genkit_run_failed(self, run: Run, error: BaseException) -> None:
        """Close what is open."""
        self._end(run, getattr(error, "partial_results", []), error)

    def _begin(self, run: Run) -> None:
        watch = self.watch(run)
        if watch is not None:
            self._open[id(run)] = watch

    def _end(self, run: Run, results: list[Result], error: BaseException | None) -> None:
        watch = self._open.pop(id(run), None)
        if watch is not None:
            self._harmless(watch.end, results, error)

    def _harmless(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Call it; whether nothing went wrong."""
        try:
            call(*arguments)
        except _FAILURES as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            _logger.warning("%s: %s; the run goes on", self.lost(), reason)
