"""What counts as equal, what is excused, and when excuses have proven nothing."""

import math

import pytest
import torch

from genkit import Pipeline, caches, samplers
from genkit.core.random import RowRandom
from genkit.core.result import Stop
from genkit.testing import Finding, TinyModel
from genkit.testing.laws.comparison import Comparison, largest_difference
from genkit.testing.laws.margins import distance_to_edge, lead, margin_of
from genkit.testing.laws.trace import Trace

END = Stop("end")


def make_trace(*logits: list[float], seed: int = 0, ids=None, stop: Stop | None = END) -> Trace:
    """A row that took the largest logit at each step, unless `ids` says otherwise."""
    rows = [torch.tensor(row, dtype=torch.float64) for row in logits]
    ids = [int(row.argmax()) for row in rows] if ids is None else ids
    return Trace((1, 2), seed, ids, rows, rows, stop)


def compare(one: Trace, other: Trace, **options) -> Finding:
    options = {"dtype": torch.float32, "margin": lead, **options}
    return Comparison(**options).row(one, other, "one and other")


def test_equal_rows_hold_and_every_step_is_a_decision():
    found = compare(make_trace([1, 3], [2, 0]), make_trace([1, 3], [2, 0]))
    assert found == Finding(decisions=2, smallest_margin=2.0)
    assert found.holds and found.summary == ""


def test_another_token_is_excused_where_the_margin_is_within_the_error_and_the_row_stops_there():
    one, other = make_trace([1, 1 + 1e-6], [0, 9]), make_trace([1 + 1e-6, 1], [9, 0])
    found = compare(one, other)
    assert (found.decisions, found.excused, found.mismatches) == (1, 1, 0)
    assert found.smallest_margin == pytest.approx(1e-6) == found.worst_logit_error


def test_no_error_excuses_nothing():
    found = compare(make_trace([1, 1], ids=[0]), make_trace([1, 1], ids=[1]))
    assert found.mismatches == 1
    assert "step 0: token 0 and token 1; margin 0, error of the processed logits 0" in found.detail


def test_a_margin_larger_than_the_error_is_no_excuse():
    found = compare(make_trace([1, 2], ids=[0]), make_trace([1, 2 + 1e-6], ids=[1]))
    assert (found.mismatches, found.excused) == (1, 0) and not found.holds


def test_a_large_error_does_not_excuse_itself():
    found = compare(make_trace([1, 1.1]), make_trace([1.1, 1]))
    assert found.excused == 0
    assert "the logits differ by 0.1, and rounding explains 0.00013 (prompt [1, 2])" in found.detail


def test_a_large_error_is_a_mismatch_with_equal_tokens_too():
    assert compare(make_trace([1, 5]), make_trace([1.1, 5])).mismatches == 1


def test_an_error_that_processing_made_excuses_nothing():
    one, other = make_trace([1, 1.5]), make_trace([1, 1.5])
    other.logits = [torch.tensor([1.0, 0.5], dtype=torch.float64)]
    other.ids = [0]
    found = compare(one, other)
    assert (found.mismatches, found.excused) == (1, 0)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 8000 * 2.0**-52),
        (torch.float32, 8000 * 2.0**-23),
        (torch.bfloat16, 1.0),
        (torch.float16, 0.125),
    ],
)
def test_the_tolerance_follows_precision_and_the_largest_logit(dtype, tolerance):
    logits = torch.tensor([-8.0, 3.0, -math.inf])
    assert Comparison(dtype).tolerance(logits) == tolerance
    assert Comparison(dtype, bound=0.5).tolerance(logits) == tolerance + 0.5
    assert Comparison(torch.float32).tolerance(torch.zeros(3)) == 1000 * 2.0**-23


def test_half_precision_promises_logits_and_no_tokens():
    one, other = make_trace([1, 1.1]), make_trace([1.1, 1])
    found = compare(one, other, dtype=torch.bfloat16)
    assert (found.decisions, found.mismatches, found.excused) == (1, 0, 0)
    assert compare(make_trace([1, 2]), make_trace([1, 3]), dtype=torch.bfloat16).mismatches == 1


def test_rows_that_end_in_another_way_differ():
    found = compare(make_trace([1, 3]), make_trace([1, 3], [0, 1], stop=None))
    assert "ends by 'end' after 1 tokens and nothing after 2 tokens" in found.detail


def test_a_lossy_cache_may_differ_in_one_step_of_a_hundred():
    different = compare(make_trace([1, 5]), make_trace([2, 5]), lossy=True)
    assert (different.mismatches, different.beyond) == (0, 1)
    assert (Finding(decisions=99) + different).holds
    too_often = Finding(decisions=98) + different
    assert not too_often.holds and "1 of 99 steps the logits differ" in too_often.summary


def test_a_law_that_excuses_more_than_one_percent_has_proven_nothing():
    assert Finding(decisions=200, excused=2).holds
    finding = Finding(decisions=200, excused=3)
    assert not finding.holds and "3 of 200" in finding.summary
    assert "proves nothing" in finding.summary


def test_nothing_compared_proves_nothing():
    assert not Finding(cases=3).holds and Finding(cases=3).summary == "nothing was compared"


def test_findings_add_up_and_keep_the_first_detail():
    first = Finding(1, 5, 1, 0, 0, 1e-6, 0.5, "a")
    second = Finding(2, 7, 1, 2, 1, 1e-3, 0.1, "b")
    assert first + second == Finding(3, 12, 2, 2, 1, 1e-3, 0.1, "a")


def test_what_only_one_side_forbids_is_an_infinite_difference():
    forbidden = torch.tensor([1.0, -math.inf])
    assert largest_difference(forbidden, forbidden.clone()) == 0
    assert largest_difference(forbidden, torch.tensor([1.0, 2.0])) == math.inf
    assert largest_difference(forbidden, torch.tensor([math.nan, -math.inf])) == math.inf


def test_margins_of_what_we_know():
    assert margin_of(samplers.Greedy()) is lead
    assert margin_of(samplers.Categorical()) is distance_to_edge
    assert margin_of(lambda state, logits: logits.argmax(-1)) is None


def test_a_draw_is_as_near_as_its_number_is_to_the_edges_of_the_interval():
    rng = RowRandom([5], [0])
    rng.step = 2
    drawn = float(rng.uniform("categorical:0"))
    assert 0.1 < drawn < 0.9
    probs = [drawn - 0.01, 0.03, 1 - drawn - 0.02]  # the number falls 0.01 into the second
    logits = torch.tensor(probs, dtype=torch.float64).log()
    trace = make_trace(*[logits.tolist()] * 3, seed=5, ids=[0, 0, 1])
    assert distance_to_edge(trace, 2) == pytest.approx(0.01)
    whole = make_trace(*[[0.0, -math.inf]] * 3, seed=5, ids=[0, 0, 0])
    assert distance_to_edge(whole, 2) == math.inf


def test_a_pipeline_says_how_its_runs_compare():
    half = TinyModel(dtype=torch.bfloat16)
    assert Comparison.of(Pipeline(half)) == Comparison(torch.bfloat16, lead)
    drawing = Pipeline(TinyModel(), cache=caches.Quantized(), sampler=samplers.Categorical())
    assert Comparison.of(drawing) == Comparison(torch.float32, distance_to_edge, lossy=True)
