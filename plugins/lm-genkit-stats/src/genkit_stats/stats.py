"""An observer that writes a line for each token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from genkit_stats.log import Log
from genkit_stats.watch import Watcher

if TYPE_CHECKING:
    from genkit.core.run import Run

VARIABLE = "GENKIT_STATS_FILE"
"""The environment variable that names the file."""


class Stats(Watcher):
    """Appends one JSON object for each row and step of every run to a file.

    The keys are those of `genkit_stats.log.Log`. Any number of runs, threads and processes may
    write to one file. What goes wrong with it harms no run: the first time there is a warning, and
    the run goes on without.

    Args:
        path: the file; by default what `GENKIT_STATS_FILE` says when a run begins. Without either
            nothing is measured.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._given = None if path is None else os.fspath(path)

    def watch(self, run: Run) -> Log | None:
        """Open the file, if there is one."""
        path = self._path()
        return Log(path, run) if path else None

    def lost(self) -> str:
        """What there is none of where something goes wrong."""
        return f"no statistics are written to {self._path()}"

    def _path(self) -> str | None:
        return os.environ.get(VARIABLE) if self._given is None else self._given
