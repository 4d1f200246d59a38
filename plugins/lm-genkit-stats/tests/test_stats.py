"""The file of statistics: what stands in it, and that it harms no run."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from math import inf, log
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import genkit_stats
from genkit import Kit, Pipeline, errors, processors, samplers
from genkit.backends.base import Backend
from genkit.plugins import hookimpl
from genkit.testing import ScriptedModel, TinyModel, check_observer
from genkit_stats import Stats
from genkit_stats.log import Log

ROW = [log(0.5), log(0.25), log(0.125), log(0.125)]
NO_ROOM = "/dev/full"  # every write fails with ENOSPC


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENKIT_STATS_FILE", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stats.jsonl"


def test_it_keeps_the_laws(path: Path) -> None:
    stats = Stats(path)
    check_observer(stats)
    assert {record["row"] for record in records(path)} == {0, 1, 2}
    assert not stats._open


# --- what stands in the file ---


def test_numbers_of_one_step(path: Path) -> None:
    """Tokens 0 and 1 are left with 2/3 and 1/3; token 1 is forced to be drawn."""

    def second(state: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(logits), dtype=torch.int64)

    pipeline = Pipeline(
        ScriptedModel([ROW]),
        processors=[processors.TopK(k=2)],
        sampler=second,
        observers=[Stats(path)],
    )
    pipeline.generate([0], seed=7, max_new_tokens=1)
    (record,) = records(path)
    assert list(record) == [
        "run", "row", "step", "token_id", "entropy", "rank", "logprob",
        "raw_entropy", "raw_rank", "raw_logprob", "seconds", "elapsed",
    ]  # fmt: skip
    assert (record["row"], record["step"], record["token_id"]) == (0, 0, 1)
    assert record["raw_entropy"] == pytest.approx(1.75 * log(2))
    assert record["entropy"] == pytest.approx(log(3) - 2 / 3 * log(2))
    assert (record["rank"], record["raw_rank"]) == (1, 1)
    assert record["logprob"] == pytest.approx(log(1 / 3))
    assert record["raw_logprob"] == pytest.approx(log(0.25))


def test_of_equal_tokens_the_lower_id_comes_first(path: Path) -> None:
    def last(state: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.full((len(logits),), 3)

    pipeline = Pipeline(ScriptedModel([ROW]), sampler=last, observers=[Stats(path)])
    pipeline.generate([0], max_new_tokens=1)
    assert records(path)[0]["rank"] == 3


def test_a_token_that_the_model_forbids_has_no_logprob(path: Path) -> None:
    def revive(state: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(logits).masked_fill(torch.arange(4) < 3, -inf)

    pipeline = Pipeline(
        ScriptedModel([[0.0, 0.0, -inf, -inf]]), processors=[revive], observers=[Stats(path)]
    )
    pipeline.generate([0], max_new_tokens=1)
    (record,) = records(path)
    assert record["raw_logprob"] is None and record["raw_rank"] == 3
    assert (record["entropy"], record["rank"], record["logprob"]) == (0, 0, 0)


def test_rows_are_counted_apart_and_end_apart(path: Path) -> None:
    script = torch.zeros(2, 3, 4)
    script[0, :, 1] = script[1, :, 2] = 9.0  # row 0 ends at once: 1 is its end token
    pipeline = Pipeline(ScriptedModel(script, eos_token_ids=[1]), observers=[Stats(path)])
    pipeline.generate([[0], [0, 0]], max_new_tokens=3)
    found = [(r["row"], r["step"], r["token_id"]) for r in records(path)]
    assert found == [(0, 0, 1), (1, 0, 2), (1, 1, 2), (1, 2, 2)]
    assert len({record["run"] for record in records(path)}) == 1


def test_rows_that_run_one_after_the_other_have_one_clock(path: Path) -> None:
    model = ScriptedModel([ROW], supports=["crop"])  # no reorder: no batches
    Pipeline(model, observers=[Stats(path)]).generate([[0], [0]], max_new_tokens=2)
    found = records(path)
    assert [(r["row"], r["step"]) for r in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [r["elapsed"] for r in found] == sorted(r["elapsed"] for r in found)


def test_what_measuring_takes_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Began at 10; steps came at 11 and 13.5, and writing them ended at 13 and 20.
    ticks: Iterator[float] = iter([10.0, 11.0, 13.0, 13.5, 20.0])
    monkeypatch.setattr("genkit_stats.log.time.perf_counter", lambda: next(ticks))
    Pipeline(ScriptedModel([ROW]), observers=[Stats(path)]).generate([0], max_new_tokens=2)
    assert [(r["seconds"], r["elapsed"]) for r in records(path)] == [(1.0, 1.0), (0.5, 1.5)]


def test_it_measures_what_results_report(path: Path) -> None:
    pipeline = Pipeline(
        TinyModel(),
        processors=[processors.Temperature(temperature=0.7), processors.TopP(p=0.9)],
        sampler=samplers.Categorical(),
        observers=[Stats(path)],
    )
    results = pipeline.generate([[1, 2], [3]], seed=7, max_new_tokens=5, logprobs=0)
    for record in records(path):
        told = results[record["row"]].logprobs[record["step"]]
        assert record["token_id"] == told.token_id
        assert record["logprob"] == pytest.approx(told.processed)
        assert record["raw_logprob"] == pytest.approx(told.raw)


# --- as a plugin ---


class Tiny(Backend):
    """A small random model."""

    type: Literal["tiny"] = "tiny"

    def load(self, *, models: Any = None, progress: Any = None) -> TinyModel:
        return TinyModel()


class TinyPlugin:
    @hookimpl
    def genkit_register_backends(self) -> list[type[Backend]]:
        return [Tiny]


def build() -> Pipeline:
    recipe = {
        "version": 1,
        "backend": {"type": "tiny"},
        "stop_criteria": [{"type": "max_new_tokens", "limit": 4}],
    }
    return Kit(plugins=[TinyPlugin(), genkit_stats], entry_points=False).build(recipe)


def test_the_plugin_writes_where_the_variable_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = build()
    pipeline.generate([1])
    monkeypatch.setenv("GENKIT_STATS_FILE", str(path))  # it is read when a run begins
    pipeline.generate([1])
    pipeline.generate([1])
    assert len(records(path)) == 8
    assert len({record["run"] for record in records(path)}) == 2


def test_without_a_path_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(Log, "__init__", never)
    monkeypatch.setattr("genkit_stats.measures.measures", never)
    assert build().generate([1]).num_generated_tokens == 4


def test_importing_it_brings_neither_torch_nor_opentelemetry() -> None:
    code = (
        "import sys, genkit_stats\n"
        "from genkit import Kit\n"
        "Kit(plugins=[genkit_stats], entry_points=False)\n"
        "print([m for m in ('torch', 'opentelemetry', 'typer') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- threads and early ends ---


def test_runs_in_threads_keep_apart(path: Path) -> None:
    stats = Stats(path)
    pipeline = Pipeline(TinyModel(), sampler=samplers.Categorical(), observers=[stats])
    expected: dict[int, list[int]] = {}

    def work(seed: int) -> None:
        result = pipeline.generate([1, 2], seed=seed, max_new_tokens=20)
        expected[seed] = result.token_ids

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: dict[str, list[int]] = {}
    for record in records(path):
        assert record["step"] == len(found.setdefault(record["run"], []))
        found[record["run"]].append(record["token_id"])
    assert sorted(found.values()) == sorted(expected.values())


def test_runs_that_take_turns_keep_apart(path: Path) -> None:
    pipeline = Pipeline(TinyModel(), observers=[Stats(path)])
    both = [pipeline.decode([i], max_new_tokens=3) for i in (1, 2)]
    for steps in zip(*both, strict=True):
        assert len(steps) == 2
    first, second = records(path)[0::2], records(path)[1::2]
    assert [len({r["run"] for r in run}) for run in (first, second)] == [1, 1]
    assert [r["step"] for r in first] == [r["step"] for r in second] == [0, 1, 2]


def test_a_run_that_is_left_early_is_closed(path: Path) -> None:
    stats = Stats(path)
    steps = Pipeline(TinyModel(), observers=[stats]).decode([1], max_new_tokens=9)
    next(steps)
    steps.close()
    assert len(records(path)) == 1
    assert not stats._open


def test_a_run_that_fails_is_closed(path: Path) -> None:
    stats = Stats(path)
    pipeline = Pipeline(ScriptedModel([ROW, [float("nan")] * 4]), observers=[stats])
    with pytest.raises(errors.ModelOutputError):
        pipeline.generate([0], max_new_tokens=9)
    assert len(records(path)) == 1
    assert not stats._open


# --- a file that fails ---


@pytest.mark.parametrize("place", ["no/such/folder/x.jsonl", ".", NO_ROOM])
def test_a_failing_file_harms_no_run_and_warns_once(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if place == NO_ROOM and not os.path.exists(NO_ROOM):
        pytest.skip("this system has no /dev/full")
    stats = Stats(tmp_path / place)
    pipeline = Pipeline(TinyModel(), observers=[stats])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert pipeline.generate([1], max_new_tokens=4).num_generated_tokens == 4
    (warning,) = caplog.records
    assert "no statistics are written to" in warning.getMessage()
    assert not stats._open


def test_a_file_that_fails_in_the_middle_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stats = Stats(path)
    steps = Pipeline(TinyModel(), observers=[stats]).decode([1], max_new_tokens=5)
    next(steps)
    (log_,) = stats._open.values()
    assert isinstance(log_, Log)

    class Full:
        """Takes three bytes, as a disk does that is nearly full."""

        closed = False

        def write(self, data: bytes) -> int:
            return 3

        def close(self) -> None:
            self.closed = True

    log_._file.close()
    log_._file = full = Full()  # type: ignore[assignment]
    assert len(list(steps)) == 4
    assert full.closed
    assert [r.getMessage() for r in caplog.records] == [
        f"no statistics are written to {path}: No space left on device; the run goes on"
    ]


def broken(*arguments: Any) -> None:
    raise RuntimeError("out of order")


def broken_close(log_: Log) -> None:
    log_._file.close()
    raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("place", "function"),
    [("log.Log.__init__", broken), ("measures.measures", broken), ("log.Log.close", broken_close)],
)
def test_whatever_is_raised_harms_no_run_and_leaves_nothing_open(
    place: str,
    function: Any,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(f"genkit_stats.{place}", function)
    stats = Stats(path)
    run = Pipeline(TinyModel(), observers=[stats]).generate([1], max_new_tokens=4)
    assert run.num_generated_tokens == 4
    assert [r.getMessage() for r in caplog.records] == [
        f"no statistics are written to {path}: out of order; the run goes on"
    ]
    assert not stats._open


def test_a_step_that_cannot_be_measured_closes_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = Stats(path)
    steps = Pipeline(TinyModel(), observers=[stats]).decode([1], max_new_tokens=3)
    next(steps)
    (log_,) = stats._open.values()
    assert isinstance(log_, Log)
    monkeypatch.setattr("genkit_stats.measures.measures", broken)
    list(steps)
    assert log_._file.closed
    assert len(records(path)) == 1


def test_a_later_run_tries_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    pipeline = Pipeline(TinyModel(), observers=[Stats(folder / "x.jsonl")])
    pipeline.generate([1], max_new_tokens=2)
    folder.mkdir()
    pipeline.generate([1], max_new_tokens=2)
    assert len(records(folder / "x.jsonl")) == 2
