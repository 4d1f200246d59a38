"""The spans: one for each run, what they say, and how errors show."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

import genkit_stats
from genkit import Pipeline, errors
from genkit.testing import ScriptedModel, TinyModel, check_observer
from genkit_stats import Spans


class Collected:
    """A provider that keeps what has ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def run(self) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == "genkit.run"]
        return span


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    monkeypatch.delenv("GENKIT_STATS_STEPS", raising=False)
    collected = Collected()
    yield collected
    collected.provider.shutdown()


def pipeline(collected: Collected, model: Any = None, **options: Any) -> Pipeline:
    spans = Spans(tracer_provider=collected.provider, **options)
    return Pipeline(model or TinyModel(), observers=[spans])


@pytest.mark.parametrize("steps", [None, "events", "spans"])
def test_it_keeps_the_laws(collected: Collected, steps: Any) -> None:
    spans = Spans(steps, tracer_provider=collected.provider)
    check_observer(spans)
    assert "genkit.run" in {span.name for span in collected.spans}
    assert not spans._open


def test_a_run_is_one_span(collected: Collected) -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8, eos_token_ids=[1])
    pipeline(collected, model).generate(
        [[5, 6, 7], [4]], seeds=[2**64 - 1, 7], max_new_tokens=9, num_samples=1
    )
    (span,) = collected.spans
    assert (span.name, span.parent, span.events) == ("genkit.run", None, ())
    assert dict(span.attributes or {}) == {
        "genkit.num_rows": 2,
        "genkit.num_prompt_tokens": 4,
        "genkit.seeds": (str(2**64 - 1), "7"),
        "genkit.num_generated_tokens": 4,
        "genkit.finish_reasons": ("stop", "stop"),
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "genkit_stats"


def test_the_current_span_is_the_parent_and_stays_current(collected: Collected) -> None:
    tracer = collected.provider.get_tracer("test")
    with tracer.start_as_current_span("request") as request:
        for _ in pipeline(collected).decode([1], max_new_tokens=3):
            assert trace.get_current_span() is request
    parent = collected.run().parent
    assert parent is not None and parent.span_id == request.get_span_context().span_id


def test_steps_as_events(collected: Collected) -> None:
    model = ScriptedModel.of_ids([3, 1], 8)
    pipeline(collected, model, steps="events").generate([[5], [6]], max_new_tokens=2)
    (span,) = collected.spans
    assert [(e.name, dict(e.attributes or {})) for e in span.events] == [
        ("genkit.step", {"genkit.rows": (0, 1), "genkit.token_ids": (3, 3)}),
        ("genkit.step", {"genkit.rows": (0, 1), "genkit.token_ids": (1, 1)}),
    ]


def test_steps_as_spans_follow_each_other(collected: Collected) -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8)
    pipeline(collected, model, steps="spans").generate([5], max_new_tokens=3)
    run = collected.run()
    steps = [span for span in collected.spans if span.name == "genkit.step"]
    assert [dict(s.attributes or {})["genkit.token_ids"] for s in steps] == [(3,), (1,), (2,)]
    assert run.context is not None
    assert [s.parent and s.parent.span_id for s in steps] == [run.context.span_id] * 3
    begins = [s.start_time for s in steps]
    assert begins == [run.start_time, *(s.end_time for s in steps[:-1])]


def test_the_variable_asks_for_steps(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENKIT_STATS_STEPS", "events")
    pipeline(collected).generate([1], max_new_tokens=2)
    assert len(collected.run().events) == 2


def test_a_wrong_variable_is_warned_of_once_and_harms_no_run(
    collected: Collected, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GENKIT_STATS_STEPS", "event")
    watched = pipeline(collected)
    for _ in range(2):
        assert watched.generate([1], max_new_tokens=2).num_generated_tokens == 2
    assert [r.getMessage() for r in caplog.records] == [
        "no spans are made: GENKIT_STATS_STEPS is 'events' or 'spans', or is left out; found "
        "'event'; the run goes on"
    ]


class Broken(SpanProcessor):
    """Raises where spans of one name begin or end."""

    def __init__(self, hook: str, name: str) -> None:
        self.hook, self.name = hook, name

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._raise("on_start", span)

    def on_end(self, span: Any) -> None:
        self._raise("on_end", span)

    def _raise(self, hook: str, span: Any) -> None:
        if (hook, span.name) == (self.hook, self.name):
            raise LookupError("no collector")


@pytest.mark.parametrize("hook", ["on_start", "on_end"])
@pytest.mark.parametrize("name", ["genkit.run", "genkit.step"])
def test_what_a_span_processor_raises_harms_no_run_and_no_statistics(
    hook: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken(hook, name))
    spans, file = Spans("spans", tracer_provider=provider), tmp_path / "stats.jsonl"
    monkeypatch.setattr(genkit_stats, "_spans", spans)
    monkeypatch.setenv("GENKIT_STATS_FILE", str(file))
    made = Pipeline(TinyModel(), observers=[genkit_stats])
    assert made.generate([1], max_new_tokens=3).num_generated_tokens == 3
    assert len(file.read_text(encoding="utf-8").splitlines()) == 3
    assert [r.getMessage() for r in caplog.records] == [
        "no spans are made: no collector; the run goes on"
    ]
    assert not spans._open


def test_a_span_whose_step_fails_is_ended(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected.provider.add_span_processor(Broken("on_start", "genkit.step"))
    pipeline(collected, steps="spans").generate([1], max_new_tokens=3)
    assert collected.run().end_time


def test_a_wrong_option_is_refused() -> None:
    with pytest.raises(errors.InputError, match="found 'all'"):
        Spans("all")  # type: ignore[arg-type]


def test_an_error_is_recorded(collected: Collected) -> None:
    model = ScriptedModel([[0.0, 1.0], [float("nan")] * 2])
    with pytest.raises(errors.ModelOutputError) as caught:
        pipeline(collected, model).generate([0], max_new_tokens=5)
    span = collected.run()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == str(caught.value)
    (event,) = span.events
    assert event.name == "exception"
    assert dict(event.attributes or {})["exception.type"] == "genkit.errors.ModelOutputError"
    attributes = dict(span.attributes or {})
    assert attributes["genkit.num_generated_tokens"] == 1
    assert attributes["genkit.finish_reasons"] == ("error",)


def test_an_interrupt_is_recorded(collected: Collected) -> None:
    def interrupt(state: Any, logits: Any) -> Any:
        raise KeyboardInterrupt

    broken = pipeline(collected)
    broken.parts = Pipeline(TinyModel(), processors=[interrupt]).parts
    with pytest.raises(KeyboardInterrupt):
        broken.generate([1], max_new_tokens=2)
    span = collected.run()
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "KeyboardInterrupt",
    )
    assert dict(span.attributes or {})["genkit.finish_reasons"] == ("cancelled",)


def test_a_run_that_is_left_early_ends_its_span(collected: Collected) -> None:
    steps = pipeline(collected).decode([1], max_new_tokens=9)
    next(steps)
    assert collected.spans == ()
    steps.close()
    assert dict(collected.run().attributes or {})["genkit.finish_reasons"] == ("cancelled",)


def test_runs_in_threads_keep_apart(collected: Collected) -> None:
    watched = pipeline(collected, steps="events")

    def work(n: int) -> None:
        watched.generate([1] * n, seed=n, max_new_tokens=n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {}
    for span in collected.spans:
        attributes = dict(span.attributes or {})
        found[attributes["genkit.num_prompt_tokens"]] = (
            attributes["genkit.num_generated_tokens"],
            len(span.events),
            attributes["genkit.seeds"],
        )
    assert found == {n: (n, n, (str(n),)) for n in range(1, 9)}


def test_a_trace_that_is_not_sampled_costs_nothing() -> None:
    spans = Spans("spans", tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    steps = Pipeline(TinyModel(), observers=[spans]).decode([1], max_new_tokens=2)
    next(steps)
    assert not spans._open
    steps.close()


def test_where_nobody_collects_spans_opentelemetry_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from genkit import Pipeline\n"
        "from genkit.testing import TinyModel\n"
        "from genkit_stats import Spans\n"
        "Pipeline(TinyModel(), observers=[Spans()]).generate([1], max_new_tokens=2)\n"
        "print('opentelemetry' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_global_provider_is_used() -> None:
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "exporter = InMemorySpanExporter()\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(provider)\n"
        "from genkit import Pipeline\n"
        "from genkit.testing import TinyModel\n"
        "from genkit_stats import Spans\n"
        "Pipeline(TinyModel(), observers=[Spans()]).generate([1], max_new_tokens=2)\n"
        "print([span.name for span in exporter.get_finished_spans()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['genkit.run']\n"
