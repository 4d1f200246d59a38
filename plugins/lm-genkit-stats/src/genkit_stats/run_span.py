"""The span of one run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import Attributes

    from genkit import Result, Step
    from genkit.core.run import Run


class RunSpan:
    """A run whose span is open.

    Args:
        run: the run.
        tracer: makes its spans.
        steps: whether a step is an event of the span (`events`), a span below it (`spans`), or
            neither (None).
    """

    def __init__(self, run: Run, tracer: Tracer, steps: str | None) -> None:
        self.run = run
        self._tracer = tracer
        self._steps = steps
        self._last = time.time_ns()  # when the last step ended, in nanoseconds since 1970
        attributes: Attributes = {
            "genkit.num_rows": len(run),
            "genkit.num_prompt_tokens": sum(map(len, run.prompts)),
            "genkit.seeds": [str(seed) for seed in run.seeds],
        }
        self.span: Span = tracer.start_span(
            "genkit.run", attributes=attributes, start_time=self._last
        )

    def step(self, step: Step) -> None:
        """Add an event or a span, if steps are asked for."""
        if self._steps is None:
            return
        now = time.time_ns()
        attributes: Attributes = {
            "genkit.rows": step.rows.tolist(),
            "genkit.token_ids": step.next_ids.tolist(),
        }
        if self._steps == "events":
            self.span.add_event("genkit.step", attributes, now)
        else:
            from opentelemetry.trace import set_span_in_context

            child = self._tracer.start_span(
                "genkit.step",
                set_span_in_context(self.span),
                attributes=attributes,
                start_time=self._last,
            )
            child.end(now)
        self._last = now

    def end(self, results: list[Result], error: BaseException | None) -> None:
        """Say how the run ended, record its error if there is one, and close the span."""
        try:
            if error is not None:
                from opentelemetry.trace import StatusCode

                self.span.record_exception(error)
                self.span.set_status(StatusCode.ERROR, str(error) or type(error).__name__)
            count = sum(result.num_generated_tokens for result in results)
            self.span.set_attribute("genkit.num_generated_tokens", count)
            reasons = [result.finish_reason for result in results]
            self.span.set_attribute("genkit.finish_reasons", reasons)
        finally:
            self.close()

    def close(self) -> None:
        """Close the span."""
        self.span.end()
