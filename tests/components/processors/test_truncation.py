"""Temperatures and truncations: by hand, against plain definitions, against transformers."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import generation

import running
from genkit import Kit, Pipeline
from genkit.components.base import LogitsProcessor
from genkit.components.processors import (
    DynamicTemperature,
    Epsilon,
    Eta,
    MinP,
    RemoveInvalid,
    Renormalize,
    Smoothing,
    TailFree,
    Temperature,
    TopA,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from genkit.components.samplers import Categorical, Greedy
from genkit.core.state import GenerationState
from genkit.errors import InputError, OptionError, RecipeError
from genkit.testing import ScriptedModel, check_logits_processor, choose, process
from genkit.testing.laws.law_broken import LawBroken

INF = math.inf
NAN = math.nan

Rows = torch.Tensor | Sequence[Sequence[float]]


def bound(part: Any, logits: torch.Tensor) -> tuple[Any, GenerationState]:
    """The part bound for a run of these rows, and the state of its first step."""
    rows, vocab_size = logits.shape
    return running.bound(part, vocab_size, rows, purpose="part:0")


def apply(part: Any, rows: Rows) -> torch.Tensor:
    """The part's output; its input is checked to be untouched."""
    logits = rows if isinstance(rows, torch.Tensor) else torch.tensor(rows)
    before = logits.clone()
    call, state = bound(part, logits)
    out = logits if call is None else call(state, logits)
    assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))
    assert out.shape == logits.shape and out.dtype == logits.dtype
    return out


def of_probs(probs: Sequence[float]) -> list[list[float]]:
    return [[math.log(p) if p else -INF for p in probs]]


def ids_kept(part: Any, row: Sequence[float]) -> list[int]:
    return (apply(part, [list(row)])[0] > -INF).nonzero()[:, 0].tolist()


def kept(part: Any, probs: Sequence[float]) -> list[int]:
    return ids_kept(part, of_probs(probs)[0])


PROBS = [0.25, 0.125, 0.125, 0.5]


# --- by hand -----------------------------------------------------------------------------


def test_temperature() -> None:
    out = apply(Temperature(temperature=0.5), [[3.0, 2.0, -1.0, -INF]])
    assert out.tolist() == [[6.0, 4.0, -2.0, -INF]]


@pytest.mark.parametrize("zero", [0, 0.0, "0", -0.0, 1e-31])
def test_temperature_0_keeps_the_first_of_the_largest_as_it_is(zero) -> None:
    """TRUNC-18."""
    out = apply(Temperature(temperature=zero), [[1.0, 3.0, 3.0], [-INF, -INF, -2.0]])
    assert out.tolist() == [[-INF, 3.0, -INF], [-INF, -INF, -2.0]]


@pytest.mark.parametrize("temperature", [1e-8, 1e-20, 1e-30])
def test_a_tiny_temperature_gives_neither_infinity_nor_nan(temperature: float) -> None:
    """TRUNC-18."""
    out = apply(Temperature(temperature=temperature), [[30.0, 29.0, -30.0, 0.0, 1e4, -1e4]])
    assert out.isfinite().all() and out.argmax() == 4


def test_a_temperature_of_0_chooses_as_greedy_whatever_the_sampler() -> None:
    row = [0.5, 2.0, 2.0, 1.9]
    [logits] = apply(Temperature(temperature=0), [row]).tolist()
    assert {choose(Categorical(), logits, seed=seed) for seed in range(50)} == {1}
    assert choose(Greedy(), row) == 1


def test_dynamic_temperature_goes_from_low_to_high_with_the_entropy() -> None:
    part = DynamicTemperature(low=0.5, high=2.0)
    certain, even = [9e4, 0.0, 0.0, 0.0], [4.0, 4.0, -INF, -INF]
    assert apply(part, [certain, even]).tolist() == [[18e4, 0.0, 0.0, 0.0], [2.0, 2.0, -INF, -INF]]


@pytest.mark.parametrize(("exponent", "temperature"), [(0, 3.0), (1, 2.5), (2, 2.125), (0.5, None)])
def test_the_exponent_of_dynamic_temperature(exponent: float, temperature: float | None) -> None:
    """Three quarters of the largest entropy: 1/2, 1/8, 1/8, 1/8, 1/8 with holes up to ln 8."""
    probs = [0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3]
    share = (0.5 * math.log(2) + 0.5 * math.log(6)) / math.log(4)
    wanted = 1 + 2 * share**exponent
    out = apply(DynamicTemperature(low=1, high=3, exponent=exponent), of_probs(probs))
    assert out[0].tolist() == pytest.approx([math.log(p) / wanted for p in probs], rel=1e-6)
    if exponent == 0:
        assert wanted == temperature


def test_a_dynamic_temperature_of_0_is_greedy_in_its_row_alone() -> None:
    out = apply(DynamicTemperature(low=0, high=1), [[1e4, 0.0, 0.0], [2.0, 2.0, 2.0]])
    assert out.tolist() == [[1e4, -INF, -INF], [2.0, 2.0, 2.0]]


def test_dynamic_temperature_leaves_a_single_token() -> None:
    assert apply(DynamicTemperature(low=2, high=3), [[-INF, 5.0]]).tolist() == [[-INF, 5.0]]
    assert apply(DynamicTemperature(low=2, high=3), [[5.0]]).tolist() == [[5.0]]


@pytest.mark.parametrize(("k", "ids"), [(1, [3]), (2, [0, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3])])
def test_top_k_breaks_ties_by_the_lower_id(k: int, ids: list[int]) -> None:
    assert kept(TopK(k=k), PROBS) == ids


@pytest.mark.parametrize(("k", "ids"), [(1, [3]), (2, [0, 3]), (3, [0, 1, 2, 3])])
def test_top_k_can_keep_ties(k: int, ids: list[int]) -> None:
    assert kept(TopK(k=k, ties="keep"), PROBS) == ids


def test_top_k_is_lifted_to_min_keep() -> None:
    assert kept(TopK(k=1, min_keep=3), PROBS) == [0, 1, 3]
    assert kept(TopK(k=3, min_keep=2), PROBS) == [0, 1, 3]


@pytest.mark.parametrize("k", [5, 10**7])
def test_top_k_above_the_vocabulary_keeps_everything(k: int) -> None:
    assert kept(TopK(k=k), PROBS) == [0, 1, 2, 3]


def test_top_k_of_more_than_is_allowed_keeps_what_is_allowed() -> None:
    assert ids_kept(TopK(k=3), [-INF, 1.0, -INF, 1.0, -INF]) == [1, 3]


@pytest.mark.parametrize(
    ("p", "ids"),
    [(0.0, [3]), (0.4, [3]), (0.5, [3]), (0.51, [0, 3]), (0.75, [0, 3]), (0.76, [0, 1, 3])],
)
def test_top_p_is_the_smallest_set_that_holds_the_mass(p: float, ids: list[int]) -> None:
    assert kept(TopP(p=p), PROBS) == ids


@pytest.mark.parametrize(
    ("rule", "p", "num_kept"),
    [
        ("above<p", 0.5, 2),
        ("above<=p", 0.5, 3),
        ("through<=p", 0.5, 2),
        ("above<p", 0.6, 3),
        ("above<=p", 0.6, 3),
        ("through<=p", 0.6, 2),
        ("above<p", 0.0, 1),
        ("above<=p", 0.0, 1),
        ("through<=p", 0.0, 1),
        ("above<=p", 1.0, 4),
        ("through<=p", 1.0, 4),
    ],
)
def test_the_rules_of_top_p(rule: str, p: float, num_kept: int) -> None:
    """Four equal tokens, whose masses are exact."""
    assert ids_kept(TopP(p=p, rule=rule), [1.3] * 4) == list(range(num_kept))
    assert ids_kept(TopP(p=p, rule=rule, ties="keep"), [1.3] * 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(("min_keep", "ids"), [(1, [3]), (2, [0, 3]), (3, [0, 1, 3]), (9, None)])
def test_top_p_keeps_min_keep(min_keep: int, ids: list[int] | None) -> None:
    assert kept(TopP(p=0.1, min_keep=min_keep), PROBS) == (ids or [0, 1, 2, 3])


def test_top_p_of_1_keeps_everything_even_what_underflows() -> None:
    for part in (TopP(p=1.0), TypicalP(p=1.0), TailFree(z=1.0)):
        row = torch.tensor([[0.0, -50.0, -200.0, -3000.0]])
        assert torch.equal(apply(part, row), row)
        state = bound(part, row)[1]
        assert torch.equal(part(state, row), row)  # unbound, too


def test_top_p_counts_the_mass_of_allowed_tokens_only() -> None:
    assert kept(TopP(p=0.6), [0.5, 0.25, 0.25, 0.0]) == [0, 1]


def test_half_of_many_equal_tokens_is_just_half() -> None:
    assert ids_kept(TopP(p=0.5), [0.3] * 48) == list(range(24))
    assert ids_kept(TopP(p=0.5, rule="above<=p"), [0.3] * 48) == list(range(25))


@pytest.mark.parametrize(
    ("min_p", "ids"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 2, 3]), (0.3, [0, 3]), (1.0, [3])]
)
def test_min_p(min_p: float, ids: list[int]) -> None:
    assert kept(MinP(min_p=min_p), PROBS) == ids


@pytest.mark.parametrize(("min_keep", "ids"), [(2, [0, 3]), (3, [0, 1, 3]), (9, [0, 1, 2, 3])])
def test_min_p_keeps_min_keep(min_keep: int, ids: list[int]) -> None:
    assert kept(MinP(min_p=0.9, min_keep=min_keep), PROBS) == ids


@pytest.mark.parametrize(
    ("p", "ids"), [(0.0, [1]), (0.6, [1]), (0.71, [1, 2]), (0.86, [1, 2, 3]), (0.96, [0, 1, 2, 3])]
)
def test_typical_p_begins_where_the_surprise_is_what_is_expected(p: float, ids) -> None:
    """The entropy is 0.914 nats; the surprises are 3.0, 0.36, 1.9 and 2.3."""
    assert kept(TypicalP(p=p), [0.05, 0.7, 0.15, 0.1]) == ids


def test_typical_p_may_drop_the_most_probable_token() -> None:
    """The entropy is 1.64 nats, and the surprises are 0.92 and, five times, 2.12."""
    probs = [0.4, 0.12, 0.12, 0.12, 0.12, 0.12]
    assert kept(TypicalP(p=0.15), probs) == [1, 2]
    assert kept(TypicalP(p=0.15, min_keep=3), probs) == [1, 2, 3]
    assert kept(TypicalP(p=0.15, ties="keep"), probs) == [1, 2, 3, 4, 5]
    assert kept(TypicalP(p=0.15, ties="keep", min_keep=6), probs) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("epsilon", "ids"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 3]), (0.3, [3]), (0.9, [3])]
)
def test_epsilon(epsilon: float, ids: list[int]) -> None:
    assert kept(Epsilon(epsilon=epsilon), PROBS) == ids


def test_epsilon_and_eta_keep_tokens_that_equal_the_last_of_min_keep() -> None:
    for part in (Epsilon(epsilon=0.99, min_keep=3), Eta(epsilon=0.99, min_keep=3)):
        assert kept(part, PROBS) == [0, 1, 2, 3]
    for part in (Epsilon(epsilon=0.99, min_keep=2), Eta(epsilon=0.99, min_keep=2)):
        assert kept(part, PROBS) == [0, 3]
    assert ids_kept(Epsilon(epsilon=0.99), [2.0] * 5) == [0, 1, 2, 3, 4]


def test_eta_is_the_lesser_of_two() -> None:
    entropy = 1.75 * math.log(2)  # eta = sqrt(epsilon) * exp(-1.213), at most epsilon
    assert kept(Eta(epsilon=0.16), PROBS) == [0, 1, 2, 3]
    assert 0.125 > math.sqrt(0.16) * math.exp(-entropy) > 0.118
    assert kept(Eta(epsilon=0.2), PROBS) == [0, 3]
    assert kept(Eta(epsilon=0.001), [0.9990, 0.0009, 0.0001]) == [0]


@pytest.mark.parametrize(("h", "ids"), [(0.1, [3]), (0.3, [3]), (0.6, [0, 3]), (0.8, [0, 1, 3])])
def test_top_h(h: float, ids: list[int]) -> None:
    """The tokens contribute 2, 2, 1.5 and 1.5 parts of 7 to the entropy."""
    assert kept(TopH(h=h), PROBS) == ids


def test_top_h_looks_at_candidates_only() -> None:
    assert kept(TopH(h=1.0), PROBS) == [0, 1, 2, 3]
    assert kept(TopH(h=1.0, num_candidates=3), PROBS) == [0, 1, 3]
    assert ids_kept(TopH(h=1.0), [0.0] * 150) == list(range(100))


def test_top_h_keeps_no_token_without_probability() -> None:
    assert ids_kept(TopH(h=0.9), [0.0, -1e4, -2e4]) == [0]


@pytest.mark.parametrize(
    ("n", "ids"), [(0.1, [0]), (1.0, [0, 1]), (1.8, [0, 1, 2]), (9, [0, 1, 2, 3])]
)
def test_top_n_sigma(n: float, ids: list[int]) -> None:
    """The standard deviation is the root of 5, 2.236; as of a sample it is 2.582."""
    assert ids_kept(TopNSigma(n=n), [4.0, 2.0, 0.0, -2.0]) == ids


def test_top_n_sigma_of_a_sample_is_wider() -> None:
    row = [4.0, 2.0, 0.0, -2.0]
    assert ids_kept(TopNSigma(n=0.8), row) == [0]
    assert ids_kept(TopNSigma(n=0.8, deviation="sample"), row) == [0, 1]


def test_top_n_sigma_counts_allowed_tokens_only() -> None:
    assert ids_kept(TopNSigma(n=1.0), [4.0, 2.0, -INF, 0.0, -2.0, -INF]) == [0, 1]
    assert ids_kept(TopNSigma(n=1.0, deviation="sample"), [-INF, 7.0, -INF]) == [1]


XTC = [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, [3]),
        ({"threshold": 0.15}, [2, 3]),
        ({"threshold": 0.35}, [0, 1, 2, 3]),
        ({"threshold": 0.6}, [0, 1, 2, 3]),
        ({"threshold": 0.0}, [3]),
        ({"probability": 0.0}, [0, 1, 2, 3]),
        ({"min_keep": 2, "threshold": 0.15}, [2, 3]),
        ({"min_keep": 3, "threshold": 0.15}, [0, 1, 2, 3]),
        ({"threshold": 0.15, "protected_ids": [1]}, [1, 2, 3]),
        ({"threshold": 0.15, "protected_ids": [2]}, [2, 3]),
        ({"threshold": 0.15, "protected_ids": [1], "protection": "skip_step"}, [0, 1, 2, 3]),
        ({"threshold": 0.15, "protected_ids": [2], "protection": "skip_step"}, [2, 3]),
        ({"threshold": 0.15, "protected_ids": [1], "min_keep": 3}, [1, 2, 3]),
    ],
)
def test_xtc(options: dict[str, Any], ids: list[int]) -> None:
    assert kept(Xtc(**{"probability": 1.0, "threshold": 0.05} | options), XTC) == ids


def test_xtc_at_the_threshold() -> None:
    row = [1.3] * 4
    assert ids_kept(Xtc(probability=1, threshold=0.25), row) == [3]
    assert ids_kept(Xtc(probability=1, threshold=0.25, comparison=">"), row) == [0, 1, 2, 3]


def test_xtc_keeps_one_of_the_least_probable_or_all_of_them() -> None:
    assert kept(Xtc(probability=1), PROBS) == [2]
    assert kept(Xtc(probability=1, ties="keep"), PROBS) == [1, 2]


def test_xtc_takes_no_forbidden_token_for_a_top_choice() -> None:
    assert kept(Xtc(probability=1, threshold=0), [0.5, 0.3, 0.2, 0.0]) == [2]


def test_xtc_refuses_ids_that_the_model_does_not_have() -> None:
    with pytest.raises(InputError, match="protected_ids: 4 is no token id"):
        kept(Xtc(probability=1, protected_ids=[4]), XTC)


def test_xtc_rolls_once_a_row_and_step() -> None:
    logits = torch.tensor(of_probs(XTC)).expand(4000, -1)
    part, state = bound(Xtc(probability=0.3), logits)
    out = part(state, logits)
    rolled = state.rng.uniform("part:0") < 0.3
    assert torch.equal(out[:, 0] == -INF, rolled)
    assert torch.equal(out, part(state, logits))
    assert 0.27 < rolled.double().mean() < 0.33
    state.append(torch.zeros(4000, dtype=torch.int64))
    assert not torch.equal(part(state, logits), out)


@pytest.mark.parametrize("probability", [0.25, 0.9])
@pytest.mark.parametrize("threshold", [0.05, 0.15, 0.35])
def test_the_expectation_of_xtc_is_the_average_of_its_rolls(
    probability: float, threshold: float
) -> None:
    logits = torch.tensor(of_probs(XTC))
    dropped = apply(Xtc(probability=1, threshold=threshold), logits)
    part = Xtc(probability=probability, threshold=threshold, mode="expectation")
    average = (1 - probability) * logits.softmax(-1) + probability * dropped.softmax(-1)
    torch.testing.assert_close(apply(part, logits).softmax(-1), average)


def test_the_expectation_of_always_is_to_drop() -> None:
    assert kept(Xtc(probability=1, threshold=0.15, mode="expectation"), XTC) == [2, 3]


@pytest.mark.parametrize(
    ("z", "ids"), [(0.0, [0]), (0.74, [0]), (0.76, [0, 1]), (0.999, [0, 1]), (1.0, [0, 1, 2, 3])]
)
def test_tail_free(z: float, ids: list[int]) -> None:
    """Sorted 0.7, 0.2, 0.06, 0.04 bends by 0.36 and 0.12: three quarters and one quarter."""
    assert ids_kept(TailFree(z=z), of_probs([0.7, 0.2, 0.06, 0.04])[0]) == ids


def test_tail_free_of_a_flat_row_drops_its_last_token() -> None:
    assert ids_kept(TailFree(z=0.5), [1.0] * 4) == [0, 1, 2]
    assert ids_kept(TailFree(z=0.5), [1.0] * 2) == [0]
    assert ids_kept(TailFree(z=0.5), [1.0]) == [0]


@pytest.mark.parametrize(
    ("a", "ids"), [(0.0, [0, 1, 2, 3]), (0.4, [0, 1, 2, 3]), (0.6, [0, 3]), (0.9, [0, 3])]
)
def test_top_a(a: float, ids: list[int]) -> None:
    assert kept(TopA(a=a), PROBS) == ids


def test_top_a_is_stricter_the_more_is_certain() -> None:
    assert kept(TopA(a=1.0), [0.9, 0.1]) == [0]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (1.0, [4.0, 3.5, 2.0, -4.0]),  # - x**2 / 2
        (2.0, [4.0, 3.5, 1.0, -16.0]),  # - x**2 / 4 + x**3 / 4
        (3.0, [4.0, 3.5, 0.0, -28.0]),  # + x**3 / 2
    ],
)
def test_smoothing(curve: float, expected: list[float]) -> None:
    out = apply(Smoothing(factor=0.5, curve=curve), [[4.0, 3.0, 2.0, 0.0, -INF]])
    assert out.tolist() == [[*expected, -INF]]


def test_renormalize() -> None:
    logits = torch.tensor([[1.0, 3.0, -INF, 2.0], [1e4, -1e4, 0.0, 1e4]])
    out = apply(Renormalize(), logits)
    torch.testing.assert_close(out.exp().sum(-1), torch.ones(2))
    torch.testing.assert_close(out.softmax(-1), logits.softmax(-1))
    assert out[0, 2] == -INF


def test_remove_invalid() -> None:
    most = torch.finfo(torch.float32).max
    row = [[NAN, INF, -INF, 1.5]]
    assert apply(RemoveInvalid(), row).tolist() == [[0.0, most, -INF, 1.5]]
    lowest = apply(RemoveInvalid(minus_infinity="lowest"), row)
    assert lowest.tolist() == [[0.0, most, -most, 1.5]]
    wide = apply(RemoveInvalid(), torch.tensor(row, dtype=torch.float64))
    assert wide[0, 1] == torch.finfo(torch.float64).max


# --- options -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Temperature(temperature=-1),
            "temperature: .*greater than or equal to 0, found -1",
        ),
        (lambda: Temperature(temperature=NAN), "temperature"),
        (lambda: Temperature(temperature="warm"), "temperature: .*found 'warm'"),
        (lambda: Temperature(temperature=True), "a number is expected, found True"),
        (lambda: Temperature(), "temperature: this option is required"),
        (lambda: DynamicTemperature(low=2, high=1), "`low` is at most `high`, which is 1"),
        (lambda: DynamicTemperature(low=-1, high=1), "low: .*found -1"),
        (lambda: DynamicTemperature(low=0, high=1, exponent=-1), "exponent: .*found -1"),
        (lambda: TopK(k=0), "k: .*greater than or equal to 1, found 0"),
        (lambda: TopK(k=2.5), "k: .*found 2.5"),
        (lambda: TopK(k=2, ties="all"), "ties: .*'by_id' or 'keep', found 'all'"),
        (lambda: TopP(p=1.5), "p: .*found 1.5"),
        (lambda: TopP(p=-0.1), "p: .*found -0.1"),
        (lambda: TopP(p=0.5, rule="<"), "rule: .*'above<p', 'above<=p' or 'through<=p', found '<'"),
        (lambda: TopP(p=0.5, min_keep=0), "min_keep: .*found 0"),
        (lambda: MinP(min_p=2), "min_p: .*found 2"),
        (lambda: TypicalP(p=1.1), "p: .*found 1.1"),
        (lambda: TypicalP(p=0.5, rule="through<=p"), "rule: .*found 'through<=p'"),
        (lambda: Epsilon(epsilon=1), "epsilon: .*less than 1, found 1"),
        (lambda: Eta(epsilon=-1), "epsilon: .*found -1"),
        (lambda: TopH(h=0), "h: .*greater than 0, found 0"),
        (lambda: TopNSigma(n=0), "n: .*greater than 0, found 0"),
        (lambda: Xtc(), "probability: this option is required"),
        (lambda: Xtc(probability=2), "probability: .*found 2"),
        (lambda: Xtc(probability=1, comparison="<"), "comparison: .*'>=' or '>', found '<'"),
        (lambda: TailFree(z=2), "z: .*found 2"),
        (lambda: TopA(a=2), "a: .*found 2"),
        (lambda: Smoothing(factor=-1), "factor: .*found -1"),
        (lambda: Smoothing(factor=1, curve=4), "curve: .*less than or equal to 3, found 4"),
        (lambda: RemoveInvalid(minus_infinity=0), "minus_infinity: .*found 0"),
    ],
)
def test_wrong_options_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    "part",
    [
        Temperature(temperature=1),
        DynamicTemperature(low=1, high=1),
        TopK(k=4),
        TopP(p=1),
        MinP(min_p=0),
        TypicalP(p=1),
        Epsilon(epsilon=0),
        Eta(epsilon=0),
        TopH(h=1),
        Xtc(probability=0),
        Xtc(probability=1, threshold=0.51),
        TailFree(z=1),
        TopA(a=0),
        Smoothing(factor=0),
    ],
    ids=repr,
)
def test_a_neutral_value_is_not_there_at_all(part: LogitsProcessor) -> None:
    assert bound(part, torch.zeros(1, 4))[0] is None


# --- edges -------------------------------------------------------------------------------

PARTS: list[LogitsProcessor] = [
    Temperature(temperature=0.7),
    Temperature(temperature=0),
    DynamicTemperature(low=0, high=1.5),
    DynamicTemperature(low=0.5, high=3, exponent=2),
    TopK(k=1),
    TopK(k=3),
    TopK(k=3, ties="keep", min_keep=4),
    TopP(p=0),
    TopP(p=0.8),
    TopP(p=0.8, rule="above<=p", ties="keep"),
    TopP(p=0.8, rule="through<=p", min_keep=2),
    MinP(min_p=1),
    MinP(min_p=0.1, min_keep=2),
    TypicalP(p=0.5),
    TypicalP(p=0, rule="above<=p"),
    TypicalP(p=0.9, ties="keep", min_keep=2),
    Epsilon(epsilon=0.1),
    Epsilon(epsilon=0.9, min_keep=3),
    Eta(epsilon=0.1),
    Eta(epsilon=0.9, min_keep=3),
    TopH(h=0.4),
    TopH(h=1, num_candidates=2),
    TopNSigma(n=0.5),
    TopNSigma(n=2, deviation="sample"),
    Xtc(probability=1, threshold=0),
    Xtc(probability=0.5, ties="keep", comparison=">", protected_ids=[0]),
    Xtc(probability=0.5, min_keep=2, protected_ids=[0], protection="skip_step"),
    Xtc(probability=0.5, mode="expectation"),
    TailFree(z=0),
    TailFree(z=0.9),
    TopA(a=1),
    Smoothing(factor=0.3),
    Smoothing(factor=0.3, curve=3),
    Renormalize(),
    RemoveInvalid(),
]
MOVES_LOGITS = (Temperature, DynamicTemperature, Smoothing, Renormalize)

EDGES = [
    [[2.5] * 6],  # all equal
    [[-INF, -INF, 3.0, -INF, -INF, -INF]],  # one allowed
    [[-INF, -1.0, -INF, -INF, 1.0, -INF]],  # two
    [[3.0, 1.0, 3.0, 0.0, 3.0, 1.0]],  # ties at the top
    [[3.0, 1.0, 1.0, 1.0, 1.0, 1.0]],  # and below
    [[1e30, -1e30, 1e29, 0.0, 1e30, -INF]],  # huge
    [[1e-30, -1e-30, 0.0, 2e-30, -0.0, 1e-38]],  # tiny
    [[0.0, -800.0, -1e5, -1e9, -INF, -1e20]],  # without probability
    [[0.7]],
    [[0.7, 0.7]],
    [[0.0, 1.0, 2.0], [-INF, 5.0, -INF], [-INF, -INF, -INF]],
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_edges(part: LogitsProcessor) -> None:
    lowers = isinstance(part, MOVES_LOGITS) or getattr(part, "mode", "") == "expectation"
    for dtype, rows in product((torch.float32, torch.float64), EDGES):
        logits = torch.tensor(rows, dtype=dtype)
        out = apply(part, logits)
        assert not out.isnan().any() and not (out == INF).any()
        assert (out[logits == -INF] == -INF).all()
        assert torch.equal((out > -INF).any(-1), (logits > -INF).any(-1))
        if not lowers:  # what stays is as it was
            assert torch.equal(out[out > -INF], logits[out > -INF])
        if part.keeps_argmax:
            first = logits.argmax(-1, keepdim=True)
            assert torch.equal(out.gather(-1, first)[:, 0], out.amax(-1))


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_rows_far_apart_in_memory(part: LogitsProcessor) -> None:
    wide = torch.randn((6, 40), generator=torch.Generator().manual_seed(1))
    view = wide.t()[::2].t()[1::2]
    assert not view.is_contiguous()
    assert torch.equal(apply(part, view), apply(part, view.contiguous()))


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_nan_is_left_for_the_loop_to_see(part: LogitsProcessor) -> None:
    """A row with NaN never becomes one that looks healthy, unless the part is there for that."""
    out = apply(part, [[1.0, NAN, 2.0, 0.0, -1.0, 0.5]])
    assert bool(out.isnan().any()) is not isinstance(part, RemoveInvalid)


FIRST_OF_EACH = list({type(part): part for part in reversed(PARTS)}.values())


@pytest.mark.parametrize("part", FIRST_OF_EACH, ids=repr)
def test_the_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=2)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_the_laws_with_other_options(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=40)
    check_logits_processor(part, vocab_size=1, max_examples=2)


def test_the_lowest_number_in_place_of_minus_infinity_breaks_a_law() -> None:
    """It is offered because transformers does it; nothing is forbidden any more."""
    with pytest.raises(LawBroken, match="finite floor"):
        check_logits_processor(RemoveInvalid(minus_infinity="lowest"), max_examples=2)


# --- plain definitions: slow, obvious, and written without a tensor -------------------------


def exact_probs(row: Sequence[float]) -> list[float]:
    weights = [math.exp(x - max(row)) for x in row]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def by_rank(keys: Sequence[float]) -> list[int]:
    """Ids by descending key, equal ones by ascending id."""
    return sorted(range(len(keys)), key=lambda i: (-keys[i], i))


def first_ids(keys: Sequence[float], count: int, ties: str) -> set[int]:
    ids = by_rank(keys)[:count]
    return {
        i for i, key in enumerate(keys) if i in ids or (ties == "keep" and key == keys[ids[-1]])
    }


def until(order: Sequence[int], probs: Sequence[float], rule: str, p: float) -> int:
    """How many ids the rule keeps; examples in which rounding would decide are put aside."""
    count = 0
    for place, i in enumerate(order):
        above = math.fsum(probs[j] for j in order[:place])
        through = above + probs[i]
        assume(abs(above - p) > 1e-9 and abs(through - p) > 1e-9)
        count += above < p if rule.startswith("above") else through <= p
    return max(count, 1)


def reference_top_p(part: TopP, row: list[float]) -> set[int]:
    count = until(by_rank(row), exact_probs(row), part.rule, part.p)
    return first_ids(row, count, part.ties) | first_ids(row, part.min_keep, "by_id")


def reference_typical(part: TypicalP, row: list[float]) -> set[int]:
    probs = exact_probs(row)
    surprises = [-math.log(p) if p > 0 else INF for p in probs]
    entropy = math.fsum(p * s for p, s in zip(probs, surprises, strict=True) if p > 0)
    keys = [-abs(s - entropy) for s in surprises]
    distinct = sorted(set(row))
    ordered = sorted(keys[row.index(x)] for x in distinct if x > -INF)
    assume(all(b - a > 1e-9 for a, b in pairwise(ordered)))
    keys = [keys[row.index(x)] for x in row]
    count = until(by_rank(keys), probs, part.rule, part.p)
    return first_ids(keys, count, part.ties) | first_ids(keys, part.min_keep, "by_id")


def reference_xtc(part: Xtc, row: list[float]) -> set[int]:
    """With a probability of 1."""
    probs, everything = exact_probs(row), set(range(len(row)))
    assume(all(abs(p - part.threshold) > 1e-9 for p in probs))
    top = [i for i in by_rank(row) if row[i] > -INF and probs[i] > part.threshold]
    if len(top) < 2:
        return everything
    dropped = set(top[:-1])
    if part.ties == "keep":
        dropped = {i for i in dropped if row[i] > row[top[-1]]}
    if part.protection == "skip_step" and dropped & set(part.protected_ids):
        return everything
    dropped -= set(part.protected_ids)
    left = sum(x > -INF for x in row) - len(dropped)
    return everything - dropped if left >= part.min_keep else everything


def reference_tail_free(part: TailFree, row: list[float]) -> set[int]:
    order, probs = by_rank(row), exact_probs(row)
    p = [probs[i] for i in order]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(p, p[1:], p[2:], strict=False)]
    shares = [math.fsum(bends[: i + 1]) - part.z * math.fsum(bends) for i in range(len(bends))]
    assume(all(abs(share) > 1e-9 for share in shares) or not any(bends))
    return {order[0]} | {i for i, share in zip(order[1:], shares, strict=False) if share <= 0}


def reference_top_h(part: TopH, row: list[float]) -> set[int]:
    order = by_rank(row)[: part.num_candidates]
    probs = exact_probs([row[i] for i in order])
    parts = [-p * math.log(p) if p > 0 else 0.0 for p in probs]
    margins = [math.fsum(parts[: i + 1]) - part.h * math.fsum(parts) for i in range(len(parts))]
    assume(all(abs(margin) > 1e-12 for margin in margins))
    return {order[0]} | {i for i, margin in zip(order, margins, strict=True) if margin < 0}


def reference_top_n_sigma(part: TopNSigma, row: list[float]) -> set[int]:
    allowed = [x for x in row if x > -INF]
    mean = math.fsum(allowed) / len(allowed)
    divisor = max(len(allowed) - (part.deviation == "sample"), 1)
    sigma = math.sqrt(math.fsum((x - mean) ** 2 for x in allowed) / divisor)
    lowest = max(row) - part.n * sigma
    assume(all(abs(x - lowest) > 1e-9 for x in allowed) or sigma == 0)
    return {i for i, x in enumerate(row) if x >= lowest}


_grid = st.integers(-16, 16).map(lambda x: x / 4)
_row = st.lists(st.one_of(_grid, _grid, _grid, st.just(-INF)), min_size=1, max_size=9)
_rows = _row.filter(lambda row: max(row) > -INF)
_shares = st.floats(0.01, 0.99)
_ties = st.sampled_from(["by_id", "keep"])
_min_keep = st.integers(1, 4)
_reference = settings(max_examples=60)


def compare_with(reference: Callable[[Any, list[float]], set[int]], part: Any, row: list[float]):
    allowed = {i for i, x in enumerate(row) if x > -INF}
    assert set(ids_kept(part, row)) == reference(part, row) & allowed


@_reference
@given(_rows, _shares, st.sampled_from(["above<p", "above<=p", "through<=p"]), _ties, _min_keep)
def test_top_p_as_defined(row, p: float, rule: str, ties: str, min_keep: int) -> None:
    compare_with(reference_top_p, TopP(p=p, rule=rule, ties=ties, min_keep=min_keep), row)


@_reference
@given(_rows, _shares, st.sampled_from(["above<p", "above<=p"]), _ties, _min_keep)
def test_typical_p_as_defined(row, p: float, rule: str, ties: str, min_keep: int) -> None:
    part = TypicalP(p=p, rule=rule, ties=ties, min_keep=min_keep)
    compare_with(reference_typical, part, row)


@_reference
@given(
    _rows, st.floats(0, 0.5), _ties, _min_keep, st.sampled_from(["keep", "skip_step"]),
    st.sampled_from([(), (0,), (0, 2)]),
)  # fmt: skip
def test_xtc_as_defined(row, threshold, ties, min_keep, protection, protected_ids) -> None:
    assume(len(row) > max(protected_ids, default=0))
    part = Xtc(
        probability=1,
        threshold=threshold,
        ties=ties,
        min_keep=min_keep,
        protection=protection,
        protected_ids=protected_ids,
    )
    compare_with(reference_xtc, part, row)


@_reference
@given(_rows, _shares)
def test_tail_free_as_defined(row, z: float) -> None:
    assume(len(row) > 1)
    compare_with(reference_tail_free, TailFree(z=z), row)


@_reference
@given(_rows, _shares, st.integers(1, 10))
def test_top_h_as_defined(row, h: float, num_candidates: int) -> None:
    compare_with(reference_top_h, TopH(h=h, num_candidates=num_candidates), row)


@_reference
@given(_rows, st.floats(0.1, 3), st.sampled_from(["population", "sample"]))
def test_top_n_sigma_as_defined(row, n: float, deviation: str) -> None:
    compare_with(reference_top_n_sigma, TopNSigma(n=n, deviation=deviation), row)


# --- against transformers, on rows with ties, holes and extremes ------------------------------

_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_wide_rows = st.lists(_values, min_size=9, max_size=9).filter(lambda row: max(row) > -INF)
_logits = st.lists(_wide_rows, min_size=1, max_size=3).map(torch.tensor)
_differential = settings(max_examples=60)


def near(value: torch.Tensor, border: Any) -> bool:
    """Whether float32 rounding could decide."""
    return bool(((value - border).abs() < 1e-5).any())


@_differential
@given(_logits, st.floats(0.0625, 5, width=32))
def test_temperature_as_transformers(logits, temperature: float) -> None:
    theirs = generation.TemperatureLogitsWarper(temperature)(None, logits)
    assert torch.equal(apply(Temperature(temperature=temperature), logits), theirs)


@_differential
@given(_logits, st.integers(1, 12), _min_keep)
def test_top_k_as_transformers(logits, k: int, min_keep: int) -> None:
    theirs = generation.TopKLogitsWarper(k, min_tokens_to_keep=min_keep)(None, logits)
    assert torch.equal(apply(TopK(k=k, ties="keep", min_keep=min_keep), logits), theirs)


@_differential
@given(_logits, _shares, _min_keep)
def test_top_p_as_transformers(logits, p: float, min_keep: int) -> None:
    """The same values are kept; of equal ones transformers keeps the highest ids in short rows."""
    ours = apply(TopP(p=p, min_keep=min_keep), logits)
    theirs = generation.TopPLogitsWarper(p, min_tokens_to_keep=min_keep)(None, logits)
    ranked = logits.double().softmax(-1).sort(descending=True).values
    assume(not near(ranked.cumsum(-1), p))
    assert torch.equal(ours.sort(-1).values, theirs.sort(-1).values)


@_differential
@given(_logits, st.floats(0.0625, 1, width=32), _min_keep)
def test_min_p_as_transformers(logits, min_p: float, min_keep: int) -> None:
    """The same values are kept; which of equal ones `min_keep` means is arbitrary there."""
    ours = apply(MinP(min_p=min_p, min_keep=min_keep), logits)
    theirs = generation.MinPLogitsWarper(min_p, min_tokens_to_keep=min_keep)(None, logits)
    for row, mine, other in zip(logits, ours, theirs, strict=True):
        probs = row.double().softmax(-1)
        # Tokens without probability in float32 are all equal there, and have no order.
        ordered = min_keep == 1 or bool((probs[row > -INF] > 1e-30).all())
        if ordered and not near(probs / probs.max(), min_p):
            assert torch.equal(mine.sort().values, other.sort().values)


@_differential
@given(_logits, _shares, _min_keep)
def test_typical_p_as_transformers(logits, p: float, min_keep: int) -> None:
    ours = apply(TypicalP(p=p, ties="keep", min_keep=min_keep), logits)
    theirs = generation.TypicalLogitsWarper(p, min_tokens_to_keep=min_keep)(None, logits)
    for row, mine, other in zip(logits, ours, theirs, strict=True):
        logprobs = row.double().log_softmax(-1)
        probs = logprobs.exp()
        distance = (logprobs + (probs * logprobs).nansum()).abs()[row > -INF]
        gaps = distance.sort().values.diff()
        equal = len(row[row > -INF].unique())
        # Distances that differ must do so in float32; the sums must not lie on the border.
        assume(int((gaps > 1e-4).sum()) == equal - 1)
        order = (logprobs + (probs * logprobs).nansum()).abs().nan_to_num(INF).argsort(stable=True)
        assume(not near(probs[order].cumsum(-1), p))
        assert torch.equal(mine, other)


@_differential
@given(_logits, st.floats(0.001, 0.9), _min_keep)
def test_epsilon_as_transformers(logits, epsilon: float, min_keep: int) -> None:
    theirs = generation.EpsilonLogitsWarper(epsilon, min_tokens_to_keep=min_keep)(None, logits)
    assume(not near(logits.double().softmax(-1), epsilon))
    assert torch.equal(apply(Epsilon(epsilon=epsilon, min_keep=min_keep), logits), theirs)


@_differential
@given(_logits, st.floats(0.001, 0.9), _min_keep)
def test_eta_as_transformers(logits, epsilon: float, min_keep: int) -> None:
    theirs = generation.EtaLogitsWarper(epsilon, min_tokens_to_keep=min_keep)(None, logits)
    probs = logits.double().softmax(-1)
    entropy = torch.special.entr(probs).sum(-1, keepdim=True)
    assume(not near(probs, (entropy.neg().exp() * epsilon**0.5).clamp(max=epsilon)))
    assert torch.equal(apply(Eta(epsilon=epsilon, min_keep=min_keep), logits), theirs)


@_differential
@given(_logits, st.floats(0.01, 0.99))
def test_top_h_as_transformers(logits, h: float) -> None:
    ours = apply(TopH(h=h), logits)
    theirs = generation.TopHLogitsWarper(h)(None, logits)
    ranked = logits.double().softmax(-1).sort(descending=True).values
    running = torch.special.entr(ranked).cumsum(-1)
    assume(not near(running[:, :-1], running[:, -1:] * h))
    assert torch.equal(ours.sort(-1).values, theirs.sort(-1).values)


@_differential
@given(_logits)
def test_renormalize_as_transformers(logits) -> None:
    theirs = generation.LogitNormalization()(None, logits)
    torch.testing.assert_close(apply(Renormalize(), logits), theirs)


_broken = st.lists(st.one_of(_values, st.sampled_from([NAN, INF, -INF])), min_size=5, max_size=5)


@_differential
@given(_broken)
def test_remove_invalid_as_transformers(row) -> None:
    logits = torch.tensor([row])
    theirs = generation.InfNanRemoveLogitsProcessor()(None, logits)
    assert torch.equal(apply(RemoveInvalid(minus_infinity="lowest"), logits), theirs)
    ours = apply(RemoveInvalid(), logits)
    assert torch.equal(ours, theirs.masked_fill(logits == -INF, -INF))


# --- what users have run into ------------------------------------------------------------


@pytest.mark.parametrize(
    ("probs", "p"), [([0.25, 0.125, 0.125, 0.5], 0.75), ([0.3, 0.1, 0.1, 0.5], 0.8)]
)
def test_top_p_takes_no_token_more_where_the_sum_is_exactly_p(probs, p: float) -> None:
    """TRUNC-01, transformers#18976. The second sum is 0.8 up to float32 rounding of the logits."""
    assert kept(TopP(p=p), probs) == [0, 3]


def test_top_p_of_1_is_no_top_p() -> None:
    """TRUNC-03, ChatRWKV#170: all eight flat tokens are drawn, as they are without it."""
    assert ids_kept(TopP(p=1.0), [0.0] * 8) == list(range(8))
    pipelines = [
        Pipeline(
            ScriptedModel([[0.0] * 8]), processors=parts, sampler=Categorical(), stop_criteria=[]
        )
        for parts in ([TopP(p=1.0)], [])
    ]
    rows = {"prompt": [[0]] * 40, "seeds": range(40), "max_new_tokens": 100}
    with_it, without = (
        [i for result in pipeline.generate(**rows) for i in result.token_ids]
        for pipeline in pipelines
    )
    assert with_it == without
    counts = torch.tensor(with_it).bincount()
    assert counts.sum() == 4000 and ((counts > 430) & (counts < 570)).all()


def test_only_what_is_set_can_be_refused() -> None:
    """TRUNC-09, onnxruntime-genai#2486: top_p alone on five tokens; no hidden top_k of 50."""
    row = [1.0, 0.0, 3.0, 0.5, -1.0]
    assert ids_kept(TopP(p=0.9), row) == [0, 2, 3]
    pipeline = Pipeline(ScriptedModel([row]), processors=[TopP(p=0.9)], sampler=Categorical())
    assert set(pipeline.generate([0], seed=0, max_new_tokens=200).token_ids) == {0, 2, 3}


@pytest.mark.parametrize("rows", [1, 2, 16, 64])
def test_top_k_keeps_exactly_k_whatever_the_batch(rows: int) -> None:
    """TRUNC-10, vllm#50979: the batch's size decided whether ties at the border were kept."""
    out = apply(TopK(k=3), [[0.0, 4.0, 4.0, 4.0, 9.0]] * rows)
    assert out.tolist() == [[-INF, 4.0, 4.0, -INF, 9.0]] * rows


def test_the_order_of_temperature_and_top_p_decides() -> None:
    """TRUNC-13, llama.cpp#4091."""
    row, cold, nucleus = [3.0, 2.0, 1.0], Temperature(temperature=0.5), TopP(p=0.8)
    assert process(cold, process(nucleus, row)) == [6.0, 4.0, -INF]
    assert process(nucleus, process(cold, row)) == [6.0, -INF, -INF]


def test_the_order_of_temperature_and_min_p_decides() -> None:
    """TRUNC-14, textgen#4463: after a high temperature min_p lets in what the model excludes.

    The result says which came first.
    """
    row = of_probs([0.95, 0.005, *[0.003] * 15])[0]
    hot, floor = Temperature(temperature=5), MinP(min_p=0.05)
    before = process(hot, process(floor, row))
    assert [i for i, x in enumerate(before) if x > -INF] == [0]
    after = process(floor, process(hot, row))
    assert sum(x > -INF for x in after) == 17
    for parts in ([floor, hot], [hot, floor]):
        pipeline = Pipeline(ScriptedModel([row]), processors=parts, sampler=Categorical())
        result = pipeline.generate([0], seed=0, max_new_tokens=300)
        said = {setting.name: setting.value for setting in result.settings}
        assert [said[f"processors.{i}.type"] for i in (0, 1)] == [part.type for part in parts]
        assert (set(result.token_ids) == {0}) is (parts[0] is floor)


def test_min_p_is_a_share_of_the_largest_and_includes_its_border() -> None:
    """TRUNC-15, koboldcpp#2138."""
    assert kept(MinP(min_p=0.25), [0.5, 0.25, 0.125, 0.125]) == [0, 1, 2, 3]
    assert kept(MinP(min_p=0.3), [0.5, 0.25, 0.125, 0.125]) == [0, 1]


def recipe_of(temperature: Any, sampler: str = "greedy") -> Any:
    data = {
        "version": 1,
        "backend": {"type": "pytorch", "model": "none"},
        "processors": [{"type": "temperature", "temperature": temperature}],
        "sampler": {"type": sampler},
    }
    return Kit(entry_points=False).recipe(data)


@pytest.mark.parametrize("zero", [0, 0.0])
@pytest.mark.parametrize("sampler", ["greedy", "categorical"])
def test_temperature_0_in_a_recipe_is_greedy_without_a_word(sampler: str, zero, recwarn) -> None:
    """TRUNC-18, transformers#36896."""
    recipe = recipe_of(zero, sampler)
    pipeline = Pipeline(
        ScriptedModel([[1.0, 5.0, 5.0, 2.0]]),
        processors=recipe.processors,
        sampler=recipe.sampler,
        stop_criteria=[],
    )
    steps = pipeline.decode([0], seed=1, max_new_tokens=20)
    assert {int(step.next_ids[0]) for step in steps} == {1}
    assert not recwarn.list


@pytest.mark.parametrize("value", ["0", -1])
def test_a_temperature_that_is_no_number_from_0_on_is_named(value) -> None:
    """TRUNC-18."""
    with pytest.raises(RecipeError, match=rf"processors\.0\.temperature: .*found .*{value}"):
        recipe_of(value)


def test_nothing_is_cut_off_that_nobody_asked_for() -> None:
    """TRUNC-19, transformers#38549: there, plain sampling keeps the 50 most probable tokens."""
    model = ScriptedModel([[0.0] * 200])
    pipeline = Pipeline(model, sampler=Categorical(), stop_criteria=[])
    steps = pipeline.decode([[0]] * 20, seeds=list(range(20)), max_new_tokens=100)
    assert {i for step in steps for i in step.next_ids.tolist()} == set(range(200))


class _Uniform:
    """Numbers in the place of a row's own."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers

    def uniform(self, purpose: str) -> torch.Tensor:
        return self.numbers


def test_a_token_that_is_cut_off_is_never_drawn() -> None:
    """transformers#23088: torch's multinomial now and then draws what has no probability."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.tensor([0.0, 2.0**-53, 1 - 2.0**-53], dtype=torch.float64)

    def drawn(logits: torch.Tensor, count: int) -> torch.Tensor:
        sampler, state = bound(Categorical(), logits[:1])
        numbers = torch.cat((ends, torch.rand(count, generator=generator, dtype=torch.float64)))
        state.rng = _Uniform(numbers)
        return sampler(state, logits.expand(len(numbers), -1))

    assert (drawn(torch.tensor([[-INF, 0.0]]), 200_000) == 1).all()
    many = torch.randn((1, 50_000), generator=generator)
    cut = apply(TopK(k=40), many)
    assert (cut[0, drawn(cut, 100)] > -INF).all()
