"""Which processors may change places, be applied twice or be moved, and which may not.

The laws that hold are properties of any row. Those that one would like to hold, and that do not,
have an example each: it is why the order in a recipe is the order of application.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genkit.components.base import LogitsProcessor
from genkit.components.processors import (
    DynamicTemperature,
    Epsilon,
    Eta,
    MinP,
    RemoveInvalid,
    Renormalize,
    RepetitionPenalty,
    Smoothing,
    SuppressTokens,
    TailFree,
    Temperature,
    TokenBias,
    TopA,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from genkit.components.samplers import AdaptiveP, Mirostat
from genkit.testing import choose
from vectors import apply, rows_of

INF = math.inf


def chain(row: Sequence[float], *parts: Any, prompt: Sequence[int] = (0,)) -> torch.Tensor:
    """What parts make of a row, one after the other, `[vocab]`."""
    return apply(parts, torch.tensor([list(row)]), prompts=[prompt], generated=[[]])[0]


def support(row: Sequence[float], *parts: Any) -> list[int]:
    """The ids that parts leave."""
    return (chain(row, *parts) > -INF).nonzero()[:, 0].tolist()


def of_probs(probs: Sequence[float]) -> list[float]:
    return [math.log(p) for p in probs]


KEEP_ARGMAX: list[LogitsProcessor] = [
    Temperature(temperature=0.6),
    Temperature(temperature=1.9),
    DynamicTemperature(low=0.4, high=1.7),
    TopK(k=3),
    TopK(k=2, ties="keep"),
    TopP(p=0.73),
    TopP(p=0.73, rule="above<=p", ties="keep"),
    TopP(p=0.73, rule="through<=p"),
    MinP(min_p=0.17),
    Epsilon(epsilon=0.07),
    Eta(epsilon=0.07),
    TopH(h=0.43),
    TopNSigma(n=0.81),
    TailFree(z=0.91),
    TopA(a=0.37),
    Smoothing(factor=0.31),
    Smoothing(factor=0.31, curve=3),
    Renormalize(),
]
OTHERS: list[LogitsProcessor] = [
    TypicalP(p=0.61),
    Xtc(probability=1, threshold=0.09),
    Xtc(probability=0.5, threshold=0.09, mode="expectation"),
]
ALL = KEEP_ARGMAX + OTHERS
DEPEND_ON_NUMBERS = (Temperature, DynamicTemperature, Smoothing, Renormalize)
TRUNCATIONS = [part for part in ALL if not isinstance(part, DEPEND_ON_NUMBERS)]

# Eighths are exact in float32, and so are their sums with whole numbers.
_eighths = st.integers(-64, 64).map(lambda x: x / 8)
_distinct = st.lists(_eighths, min_size=1, max_size=20, unique=True)
_any = st.lists(
    st.one_of(_eighths, st.integers(-2, 2).map(float), st.just(-INF)), min_size=1, max_size=20
).filter(lambda row: max(row) > -INF)
_k = st.integers(1, 12)
_share = st.floats(0.01, 0.99)
_temperature = st.floats(0.2, 4)
_few = settings(max_examples=50)
_fewer = settings(max_examples=15)


# --- laws that hold ----------------------------------------------------------------------


@_few
@given(_distinct, _k, _temperature)
def test_top_k_and_temperature_change_places(row, k: int, temperature: float) -> None:
    cut, warm = TopK(k=k), Temperature(temperature=temperature)
    assert torch.equal(chain(row, cut, warm), chain(row, warm, cut))


@_few
@given(_any, _k, _k)
def test_of_two_top_k_the_smaller_counts(row, k: int, other: int) -> None:
    assert torch.equal(chain(row, TopK(k=k), TopK(k=other)), chain(row, TopK(k=min(k, other))))


@_few
@given(_any, _k, _share)
def test_top_k_and_min_p_change_places(row, k: int, min_p: float) -> None:
    cut, floor = TopK(k=k), MinP(min_p=min_p)
    assert torch.equal(chain(row, cut, floor), chain(row, floor, cut))


@_few
@given(_distinct, st.floats(0.2, 3), _temperature)
def test_top_n_sigma_and_temperature_change_places(row, n: float, temperature: float) -> None:
    near, warm = TopNSigma(n=n), Temperature(temperature=temperature)
    assert support(row, near, warm) == support(row, warm, near)


@_few
@given(_distinct, st.sampled_from([0.5, 2.0, 4.0]), st.floats(0.01, 0.9))
def test_min_p_before_a_temperature_is_another_min_p_after_it(row, temperature, min_p) -> None:
    warm = Temperature(temperature=temperature)
    after = MinP(min_p=min_p ** (1 / temperature))
    distances = [abs(x - max(row) - math.log(min_p)) for x in row]
    if min(distances) > 1e-4:
        assert torch.equal(chain(row, MinP(min_p=min_p), warm), chain(row, warm, after))


@pytest.mark.parametrize(
    "part",
    [TopK(k=3), TopK(k=3, ties="keep"), MinP(min_p=0.2), Epsilon(epsilon=0.1), Renormalize()],
    ids=repr,
)
@_fewer
@given(_any)
def test_a_second_time_changes_nothing(part: LogitsProcessor, row) -> None:
    torch.testing.assert_close(chain(row, part, part), chain(row, part))


@pytest.mark.parametrize(
    "part",
    [
        Temperature(temperature=1),
        TopK(k=99),
        TopP(p=1),
        TypicalP(p=1),
        MinP(min_p=0),
        Epsilon(epsilon=0),
        Eta(epsilon=0),
        TopA(a=0),
        TailFree(z=1),
        Smoothing(factor=0),
        Xtc(probability=0),
        RepetitionPenalty(penalty=1),
    ],
    ids=repr,
)
@_fewer
@given(_any)
def test_neutral_options_change_nothing(part: LogitsProcessor, row) -> None:
    assert torch.equal(chain(row, part), torch.tensor(row))


@pytest.mark.parametrize("part", ALL, ids=repr)
@_fewer
@given(_any, st.integers(-1000, 1000))
def test_a_constant_added_to_all_logits_changes_nothing(part, row, constant: int) -> None:
    plain, moved = chain(row, part), chain([x + constant for x in row], part)
    assert torch.equal(plain > -INF, moved > -INF)
    # The numbers themselves are rounded at another magnitude.
    torch.testing.assert_close(moved.softmax(-1), plain.softmax(-1), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("part", ALL, ids=repr)
@_fewer
@given(_distinct, st.randoms(use_true_random=False))
def test_another_order_of_the_vocabulary_is_the_order_of_the_result(part, row, random) -> None:
    order = random.sample(range(len(row)), len(row))
    expected = chain(row, part)[order]
    torch.testing.assert_close(chain([row[i] for i in order], part), expected)


@pytest.mark.parametrize("part", TRUNCATIONS, ids=repr)
@_fewer
@given(_any)
def test_a_truncation_only_takes_tokens_away(part, row) -> None:
    before, after = torch.tensor(row), chain(row, part)
    lowered = getattr(part, "mode", "roll") == "expectation"
    assert (after <= before if lowered else (after == before) | (after == -INF)).all()


@_few
@given(_any, _share, st.integers(1, 6))
def test_min_keep_tokens_are_left(row, share: float, min_keep: int) -> None:
    possible = sum(x > -INF for x in row)
    for part in (
        TopK(k=1, min_keep=min_keep),
        TopP(p=share, min_keep=min_keep),
        TopP(p=share, rule="through<=p", min_keep=min_keep),
        TypicalP(p=share, min_keep=min_keep),
        MinP(min_p=share, min_keep=min_keep),
        Epsilon(epsilon=share, min_keep=min_keep),
        Eta(epsilon=share, min_keep=min_keep),
    ):
        assert len(support(row, part)) >= min(min_keep, possible)
    xtc = Xtc(probability=1, threshold=share / 2, min_keep=min_keep)
    assert len(support(row, xtc)) in {possible, *range(min_keep, possible)}


@pytest.mark.parametrize("part", KEEP_ARGMAX, ids=repr)
@_fewer
@given(_any)
def test_the_most_probable_token_stays_so(part, row) -> None:
    out = chain(row, part)
    assert part.keeps_argmax and out[row.index(max(row))] == out.max()


@_few
@given(_any, st.integers(1, 2), st.floats(0, 8))
def test_what_mirostat_draws_from_holds_the_most_probable_token(row, version, tau) -> None:
    run, state = rows_of([[0]], [[]], len(row))
    sampler = Mirostat(version=version, tau=tau).bind(run)
    probs = sampler.truncated(torch.tensor([row]), sampler.mu.at(state))[0]
    assert probs[row.index(max(row))] == probs.max() > 0


@_few
@given(_distinct, _k, _share)
def test_top_p_then_top_k_asks_both_of_one_distribution(row, k: int, p: float) -> None:
    """What SGLang does: both conditions on the same softmax."""
    order = sorted(range(len(row)), key=lambda i: -row[i])
    weights = [math.exp(row[i] - max(row)) for i in order]
    above = [0.0, *accumulate(weights)]
    if min(abs(mass / above[-1] - p) for mass in above) > 1e-9:
        joint = [i for rank, i in enumerate(order) if rank < k and above[rank] / above[-1] <= p]
        assert support(row, TopP(p=p, rule="above<=p"), TopK(k=k)) == sorted(joint)


# --- laws that do not hold, each with an example -----------------------------------------


def test_top_p_twice_is_not_top_p_once() -> None:
    """What is left after the first time holds more than before of the mass that is left."""
    row = of_probs([0.5, 0.3, 0.15, 0.05])
    assert support(row, TopP(p=0.8)) == [0, 1]
    assert support(row, TopP(p=0.6)) == [0, 1]
    assert support(row, TopP(p=0.6), TopP(p=0.6)) == [0]


def test_top_p_and_temperature_do_not_change_places() -> None:
    row, cold, nucleus = [3.0, 2.0, 1.0], Temperature(temperature=0.5), TopP(p=0.8)
    assert support(row, nucleus, cold) == [0, 1]
    assert support(row, cold, nucleus) == [0]


def test_top_k_and_top_p_do_not_change_places() -> None:
    """After top_k the tokens that are left share the whole mass."""
    row, cut, nucleus = of_probs([0.4, 0.3, 0.2, 0.1]), TopK(k=2), TopP(p=0.55)
    assert support(row, nucleus, cut) == [0, 1]
    assert support(row, cut, nucleus) == [0]


def test_min_p_and_top_p_do_not_change_places() -> None:
    row, floor, nucleus = of_probs([0.4, 0.3, 0.2, 0.1]), MinP(min_p=0.6), TopP(p=0.55)
    assert support(row, nucleus, floor) == [0, 1]
    assert support(row, floor, nucleus) == [0]


def test_typical_p_and_xtc_may_drop_the_most_probable_token() -> None:
    assert support(of_probs([0.4, *[0.12] * 5]), TypicalP(p=0.5)) == [1, 2, 3, 4, 5]
    assert support(of_probs([0.6, 0.3, 0.1]), Xtc(probability=1, threshold=0.2)) == [1, 2]
    assert not TypicalP.keeps_argmax and not Xtc.keeps_argmax


def test_adaptive_p_may_make_another_token_the_most_probable() -> None:
    row, seeds = of_probs([0.7, 0.2, 0.05, 0.05]), range(40)
    chosen = [choose(AdaptiveP(target=0.2), row, seed=seed) for seed in seeds]
    assert max(range(4), key=chosen.count) == 1 and 0 not in chosen


def test_a_bias_and_a_mask_change_places_only_where_the_mask_is_minus_infinity() -> None:
    """A floor of -100 is one that a bias lifts; no bias lifts minus infinity."""
    row, bias, mask = [1.0, 2.0], TokenBias(biases={0: 200.0}), SuppressTokens(token_ids=[0])
    floor = TokenBias(biases={0: -100.0})
    assert support(row, mask, bias) == support(row, bias, mask) == [1]
    assert chain(row, floor, bias).argmax() == 0


def test_a_repetition_penalty_does_not_bear_a_constant() -> None:
    """It acts on the sign of a logit: the same odds of e to 1 become other odds."""
    penalty = RepetitionPenalty(penalty=2.0)
    assert chain([2.0, 1.0], penalty, prompt=[0]).diff().item() == 0.0
    assert chain([-1.0, -2.0], penalty, prompt=[0]).diff().item() == 0.0
    assert chain([0.0, -1.0], penalty, prompt=[0]).diff().item() == -1.0
    assert chain([12.0, 11.0], penalty, prompt=[0]).diff().item() == 5.0


def test_a_sum_and_a_product_do_not_change_places() -> None:
    bias, penalty = TokenBias(biases={0: 1.0}), RepetitionPenalty(penalty=2.0)
    assert chain([2.0, 0.0], bias, penalty, prompt=[0])[0] == 1.5
    assert chain([2.0, 0.0], penalty, bias, prompt=[0])[0] == 2.0


def test_a_mask_of_finite_numbers_is_no_mask() -> None:
    """Minus infinity bears any temperature; the lowest number becomes a logit like others."""
    forbid, floor = SuppressTokens(token_ids=[0]), RemoveInvalid(minus_infinity="lowest")
    hot = Temperature(temperature=1e38)
    assert support([1.0, 2.0], forbid, hot) == [1]
    assert chain([1.0, 2.0], forbid, floor, hot).softmax(-1)[0] > 0.03
    # Where everything is forbidden, the run would end; now all tokens are as probable.
    assert chain([-INF, -INF], floor).softmax(-1).tolist() == [0.5, 0.5]


def test_nothing_changes_places_with_the_removal_of_minus_infinity() -> None:
    floor, cold = RemoveInvalid(minus_infinity="lowest"), Temperature(temperature=0.5)
    row = [1.0, -INF]
    assert support(row, cold, floor) == [0, 1]
    assert support(row, floor, cold) == [0]  # the lowest number overflows when divided
