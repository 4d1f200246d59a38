"""An observer that writes a line for each token."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from genkit_stats.log import Log

if TYPE_CHECKING:
    from genkit import Result, Step
    from genkit.core.run import Run

VARIABLE = "GENKIT_STATS_FILE"
"""The environment variable that names the file."""

_logger = logging.getLogger("genkit.stats")  # below `genkit`: the command line shows its warnings


class Stats:
    """Appends one JSON object for each row and step of every run to a file.

    The keys are those of `genkit_stats.log.Log`. Any number of runs, threads and processes may
    write to one file. What goes wrong with it harms no run: the first time there is a warning, and
    the run goes on without.

    Args:
        path: the file; by default what `GENKIT_STATS_FILE` says when a run begins. Without either
            nothing is measured.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else os.fspath(path)
        self._logs: dict[int, Log] = {}  # by the id of the run, which the log keeps alive
        self._warned = False

    def genkit_run_started(self, run: Run) -> None:
        """Open the file, if there is one."""
        path = os.environ.get(VARIABLE) if self._path is None else self._path
        if path:
            try:
                self._logs[id(run)] = Log(path, run)
            except (OSError, ValueError) as error:  # ValueError: no path can be so
                self._warn(path, error)

    def genkit_step(self, run: Run, step: Step) -> None:
        """Write a line for each row."""
        log = self._logs.get(id(run))
        if log is not None:
            try:
                log.write(step)
            except (OSError, ValueError) as error:
                self._close(run)
                self._warn(log.path, error)

    def genkit_run_finished(self, run: Run, result: list[Result]) -> None:
        """Close the file."""
        self._close(run)

    def genkit_run_failed(self, run: Run, error: BaseException) -> None:
        """Close the file."""
        self._close(run)

    def _close(self, run: Run) -> None:
        log = self._logs.pop(id(run), None)
        if log is not None:
            try:
                log.close()
            except OSError as error:  # some file systems say only now that there was no room
                self._warn(log.path, error)

    def _warn(self, path: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = getattr(error, "strerror", None) or error
            _logger.warning("no statistics are written to %s: %s; the run goes on", path, reason)
