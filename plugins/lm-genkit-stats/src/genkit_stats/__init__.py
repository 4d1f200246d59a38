"""Watches the runs of genkit: a line of statistics for each token, and a span for each run.

As a plugin it writes where `GENKIT_STATS_FILE` says and makes spans where OpenTelemetry collects
them. `Stats` and `Spans` are the same for ``observers=[...]`` in Python. Importing this is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genkit.plugins import hookimpl
from genkit_stats.spans import Spans
from genkit_stats.stats import Stats

if TYPE_CHECKING:
    from genkit import Result, Step
    from genkit.core.run import Run

__all__ = ["Spans", "Stats"]

_stats = Stats()
_spans = Spans()


@hookimpl
def genkit_run_started(run: Run) -> None:
    """A run begins."""
    _spans.genkit_run_started(run)
    _stats.genkit_run_started(run)


@hookimpl
def genkit_step(run: Run, step: Step) -> None:
    """One more token a row."""
    _spans.genkit_step(run, step)
    _stats.genkit_step(run, step)


@hookimpl
def genkit_run_finished(run: Run, result: list[Result]) -> None:
    """A run is over."""
    _stats.genkit_run_finished(run, result)
    _spans.genkit_run_finished(run, result)


@hookimpl
def genkit_run_failed(run: Run, error: BaseException) -> None:
    """A run has failed."""
    _stats.genkit_run_failed(run, error)
    _spans.genkit_run_failed(run, error)


@hookimpl
def genkit_register_commands(app: Any) -> None:
    """The command ``genkit stats FILE``."""
    from genkit_stats.command import add_to

    add_to(app)
