"""The laws of `genkit.testing` hold on every form of graph, under every cache manager."""

from __future__ import annotations

from typing import Any

import pytest

import graphs
from genkit import caches
from genkit.testing import check_backend, check_cache_manager
from graphs import LAYOUTS

MANAGERS: dict[str, Any] = {
    "none": caches.NoCache(),
    "dynamic": caches.Dynamic(),
    "static": caches.Static(),
    "prefix": caches.Prefix(),
    "quantized": caches.Quantized(bits=8, group_size=4),
    "sink_window": caches.SinkWindow(num_sinks=2, window=6),
}
WITHOUT_A_TOKENIZER = {"streamed = whole"}
PAIRS = [
    (name, manager)
    for name, form in LAYOUTS.items()
    for manager in MANAGERS
    if not (form.past == "none" and manager in ("prefix", "quantized", "sink_window"))
    and not (manager == "static" and form.past != "shared")
    and not (manager == "sink_window" and (form.past == "shared" or form.positions != "given"))
]


def broken(verdicts: Any) -> set[str]:
    return {verdict.law.name for verdict in verdicts if verdict.holds is False}


def silent(verdicts: Any) -> set[str]:
    return {verdict.law.name for verdict in verdicts if verdict.holds is None}


@pytest.mark.parametrize("name", ["merged", "shared"])
def test_laws_hold_on_a_few_cases(name: str) -> None:
    verdicts = check_backend(graphs.shared(name), max_examples=1)
    assert silent(verdicts) == WITHOUT_A_TOKENIZER
    assert broken(verdicts) == set()


def test_laws_are_measured_where_the_past_is_rounded() -> None:
    model = graphs.load("optimum", cache_dtype="bfloat16")
    verdicts = check_backend(model, max_examples=3)
    assert broken(verdicts) == set()
    measured = {each.law.name for each in verdicts if each.detail.startswith("measured")}
    assert "cached = uncached" in measured
    assert silent(verdicts) - measured == WITHOUT_A_TOKENIZER


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_laws_hold(name: str) -> None:
    verdicts = check_backend(graphs.shared(name), max_examples=8)
    assert broken(verdicts) == set()
    if name in graphs.RAGGED and name != "no_past":
        assert silent(verdicts) == WITHOUT_A_TOKENIZER


@pytest.mark.slow
@pytest.mark.parametrize(("name", "manager"), PAIRS)
def test_laws_hold_under_every_manager(name: str, manager: str) -> None:
    # A key that falls on the other side as it is rounded takes the rest of its row along: whether
    # these steps are few takes many steps to say.
    cases = 40 if manager == "quantized" else 2
    verdicts = check_cache_manager(MANAGERS[manager], graphs.shared(name), max_examples=cases)
    assert broken(verdicts) == set()
    assert len(silent(verdicts)) < len(verdicts)
