"""An observer that makes an OpenTelemetry span for each run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from genkit.errors import InputError
from genkit_stats.run_span import RunSpan
from genkit_stats.watch import Watcher

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from genkit.core.run import Run

VARIABLE = "GENKIT_STATS_STEPS"
"""The environment variable that asks for steps: `events` or `spans`."""

StepsAs = Literal["events", "spans"]


class Spans(Watcher):
    """Makes one span, `genkit.run`, for each run.

    Its attributes are `genkit.num_rows`, `genkit.num_prompt_tokens`, `genkit.seeds` (as text, since
    OpenTelemetry's numbers have a bit less), and at the end `genkit.num_generated_tokens` and
    `genkit.finish_reasons`. Numbers of tokens are sums over the rows, and the lists have an entry
    for each row. An error is recorded and becomes the status. No prompt and no text is recorded.

    The parent is the span that is current where the run begins. The run's own span does not become
    current: between two steps it is the caller's code that runs, and perhaps in another thread.

    What goes wrong with it, as in whatever collects the spans, harms no run: the first time there
    is a warning, and the run goes on without.

    Args:
        steps: whether a step is an event of the span (`events`), a span below it (`spans`), or
            neither; by default what `GENKIT_STATS_STEPS` says when a run begins. They are called
            `genkit.step`, with `genkit.rows` and `genkit.token_ids`.
        tracer_provider: by default the global one.

    Raises:
        InputError: `steps` is neither of these.
    """

    def __init__(
        self, steps: StepsAs | None = None, *, tracer_provider: TracerProvider | None = None
    ) -> None:
        super().__init__()
        self._steps = _checked("steps", steps)
        self._provider = tracer_provider

    def watch(self, run: Run) -> RunSpan | None:
        """Open the span, if anybody collects it.

        Raises:
            InputError: `GENKIT_STATS_STEPS` says something that is not known.
        """
        # Who collects spans has imported this; who does not is spared it.
        if self._provider is None and "opentelemetry.trace" not in sys.modules:
            return None
        from opentelemetry.trace import get_tracer

        steps = self._steps or _checked(VARIABLE, os.environ.get(VARIABLE) or None)
        opened = RunSpan(run, get_tracer("genkit_stats", tracer_provider=self._provider), steps)
        return opened if opened.span.is_recording() else None

    def lost(self) -> str:
        """What there is none of where something goes wrong."""
        return "no spans are made"


def _checked(name: str, steps: str | None) -> str | None:
    if steps not in (None, "events", "spans"):
        raise InputError(f"{name} is 'events' or 'spans', or is left out; found {steps!r}")
    return steps
