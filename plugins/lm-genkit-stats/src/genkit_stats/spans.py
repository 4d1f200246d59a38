"""An observer that makes an OpenTelemetry span for each run."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from genkit.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import Attributes

    from genkit import Result, Step
    from genkit.core.run import Run

VARIABLE = "GENKIT_STATS_STEPS"
"""The environment variable that asks for steps: `events` or `spans`."""

StepsAs = Literal["events", "spans"]


@dataclass
class _Open:
    """A run whose span is open."""

    run: Run  # kept alive, so that its id names no other one
    span: Span
    tracer: Tracer
    steps: str | None
    last: int  # when the last step ended, in nanoseconds since 1970


class Spans:
    """Makes one span, `genkit.run`, for each run.

    Its attributes are `genkit.num_rows`, `genkit.num_prompt_tokens`, `genkit.seeds` (as text, since
    OpenTelemetry's numbers have a bit less), and at the end `genkit.num_generated_tokens` and
    `genkit.finish_reasons`. Numbers of tokens are sums over the rows, and the lists have an entry
    for each row. An error is recorded and becomes the status. No prompt and no text is recorded.

    The parent is the span that is current where the run begins. The run's own span does not become
    current: between two steps it is the caller's code that runs, and perhaps in another thread.

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
        self._steps = _checked("steps", steps)
        self._provider = tracer_provider
        self._open: dict[int, _Open] = {}

    def genkit_run_started(self, run: Run) -> None:
        """Open the span, if anybody collects it.

        Raises:
            InputError: `GENKIT_STATS_STEPS` says something that is not known.
        """
        # Who collects spans has imported this; who does not is spared it.
        if self._provider is None and "opentelemetry.trace" not in sys.modules:
            return
        from opentelemetry.trace import get_tracer

        steps = self._steps or _checked(VARIABLE, os.environ.get(VARIABLE) or None)
        tracer = get_tracer("genkit_stats", tracer_provider=self._provider)
        attributes: Attributes = {
            "genkit.num_rows": len(run),
            "genkit.num_prompt_tokens": sum(map(len, run.prompts)),
            "genkit.seeds": [str(seed) for seed in run.seeds],
        }
        now = time.time_ns()
        span = tracer.start_span("genkit.run", attributes=attributes, start_time=now)
        if span.is_recording():
            self._open[id(run)] = _Open(run, span, tracer, steps, now)

    def genkit_step(self, run: Run, step: Step) -> None:
        """Add an event or a span, if steps are asked for."""
        found = self._open.get(id(run))
        if found is None or found.steps is None:
            return
        now = time.time_ns()
        attributes: Attributes = {
            "genkit.rows": step.rows.tolist(),
            "genkit.token_ids": step.next_ids.tolist(),
        }
        if found.steps == "events":
            found.span.add_event("genkit.step", attributes, now)
        else:
            from opentelemetry.trace import set_span_in_context

            child = found.tracer.start_span(
                "genkit.step",
                set_span_in_context(found.span),
                attributes=attributes,
                start_time=found.last,
            )
            child.end(now)
        found.last = now

    def genkit_run_finished(self, run: Run, result: list[Result]) -> None:
        """Close the span."""
        self._end(run, result)

    def genkit_run_failed(self, run: Run, error: BaseException) -> None:
        """Record the error, and close the span."""
        found = self._open.get(id(run))
        if found is not None:
            from opentelemetry.trace import StatusCode

            found.span.record_exception(error)
            found.span.set_status(StatusCode.ERROR, str(error) or type(error).__name__)
            self._end(run, getattr(error, "partial_results", []))

    def _end(self, run: Run, results: list[Result]) -> None:
        found = self._open.pop(id(run), None)
        if found is not None:
            count = sum(result.num_generated_tokens for result in results)
            found.span.set_attribute("genkit.num_generated_tokens", count)
            reasons = [result.finish_reason for result in results]
            found.span.set_attribute("genkit.finish_reasons", reasons)
            found.span.end()


def _checked(name: str, steps: str | None) -> str | None:
    if steps not in (None, "events", "spans"):
        raise InputError(f"{name} is 'events' or 'spans', or is left out; found {steps!r}")
    return steps
