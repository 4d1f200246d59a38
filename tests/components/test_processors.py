"""Each processor on four tokens that can be checked by hand, then its laws."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import generation

from genkit.components.base import LogitsProcessor
from genkit.components.processors import MinP, RepetitionPenalty, Temperature, TopK, TopP
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import OptionError

INF = math.inf


def apply(
    processor: LogitsProcessor, logits: list[list[float]], history: list[list[int]] | None = None
) -> torch.Tensor:
    """The processor's output, its input checked to be untouched."""
    history = history or [[0]] * len(logits)
    rng = RowRandom([0] * len(logits), [0] * len(logits))
    state = GenerationState(history, [10**6] * len(logits), rng)
    run = Run(
        prompts=tuple(map(tuple, history)),
        seeds=(0,) * len(logits),
        samples=(0,) * len(logits),
        limits=(10**6,) * len(logits),
        rows=tuple(range(len(logits))),
        vocab_size=len(logits[0]),
    )
    given_ = torch.tensor(logits)
    copy = given_.clone()
    bound = processor.bind(run)
    out = given_ if bound is None else bound(state, given_)
    assert torch.equal(given_, copy)
    assert out.shape == given_.shape and out.dtype == given_.dtype
    return out


def kept(processor: LogitsProcessor, probs: list[float]) -> list[int]:
    out = apply(processor, [[math.log(p) if p else -INF for p in probs]])
    return out[0].isfinite().nonzero()[:, 0].tolist()


PROBS = [0.25, 0.125, 0.125, 0.5]


def test_temperature() -> None:
    assert apply(Temperature(temperature=0.5), [[3.0, 2.0, -1.0, -INF]]).tolist() == [
        [6.0, 4.0, -2.0, -INF]
    ]


@pytest.mark.parametrize(("k", "ids"), [(1, [3]), (2, [0, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3])])
def test_top_k_breaks_ties_by_the_lower_id(k: int, ids: list[int]) -> None:
    assert kept(TopK(k=k), PROBS) == ids


@pytest.mark.parametrize("k", [5, 10**7])
def test_top_k_above_the_vocabulary_keeps_everything(k: int) -> None:
    assert kept(TopK(k=k), PROBS) == [0, 1, 2, 3]


@pytest.mark.parametrize("rows", [1, 16])
def test_top_k_keeps_exactly_k_whatever_the_batch(rows: int) -> None:
    out = apply(TopK(k=3), [[0.0, 4.0, 4.0, 4.0, 9.0]] * rows)
    assert out.tolist() == [[-INF, 4.0, 4.0, -INF, 9.0]] * rows


@pytest.mark.parametrize(
    ("p", "ids"),
    [(0.0, [3]), (0.4, [3]), (0.5, [3]), (0.51, [0, 3]), (0.75, [0, 3]), (0.76, [0, 1, 3])],
)
def test_top_p_is_the_smallest_set_that_holds_the_mass(p: float, ids: list[int]) -> None:
    assert kept(TopP(p=p), PROBS) == ids


def test_top_p_of_one_keeps_everything_even_what_underflows() -> None:
    assert apply(TopP(p=1.0), [[0.0, -50.0, -200.0, -300.0]]).isfinite().all()


def test_top_p_counts_the_mass_of_allowed_tokens_only() -> None:
    out = apply(TopP(p=0.6), [[math.log(0.5), math.log(0.25), math.log(0.25), -INF]])
    assert out[0].isfinite().tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("min_p", "ids"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 2, 3]), (0.3, [0, 3]), (1.0, [3])]
)
def test_min_p(min_p: float, ids: list[int]) -> None:
    assert kept(MinP(min_p=min_p), PROBS) == ids


def test_repetition_penalty_acts_once_on_the_sign() -> None:
    out = apply(RepetitionPenalty(penalty=2.0), [[4.0, -4.0, 3.0, 0.0]], [[0, 1, 0, 3]])
    assert out.tolist() == [[2.0, -8.0, 3.0, 0.0]]


def test_repetition_penalty_knows_no_padding() -> None:
    """Padding is id 0 in the rectangle; only the row that has seen 0 is penalised for it."""
    out = apply(RepetitionPenalty(penalty=2.0), [[4.0, 4.0]] * 2, [[1], [1, 0, 1]])
    assert out.tolist() == [[4.0, 2.0], [2.0, 2.0]]


def test_repetition_penalty_follows_the_row() -> None:
    run = Run(((1,), (2,)), (0, 0), (0, 0), (9, 9), (0, 1), vocab_size=4)
    state = GenerationState([[1], [2]], [9, 9], RowRandom([0, 0], [0, 0]))
    bound = RepetitionPenalty(penalty=2.0).bind(run)
    logits = torch.ones(2, 4)
    bound(state, logits)
    state.append(torch.tensor([3, 0]))
    assert bound(state, logits).tolist() == [[1, 0.5, 1, 0.5], [0.5, 1, 0.5, 1]]
    state.reorder([1])
    bound.reorder([1])
    state.append(torch.tensor([1]))
    assert bound(state, logits[:1]).tolist() == [[0.5, 0.5, 0.5, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Temperature(temperature=0), "sampler: {type: greedy}"),
        (lambda: Temperature(temperature=-1), "sampler: {type: greedy}"),
        (lambda: Temperature(temperature=float("nan")), "temperature"),
        (lambda: Temperature(temperature="warm"), "temperature: .*found 'warm'"),
        (lambda: Temperature(temperature=True), "a number is expected, found True"),
        (lambda: Temperature(), "temperature: this option is required"),
        (lambda: TopK(k=0), "k: .*greater than or equal to 1, found 0"),
        (lambda: TopK(k=2.5), "k: .*found 2.5"),
        (lambda: TopP(p=1.5), "p: .*found 1.5"),
        (lambda: TopP(p=-0.1), "p: .*found -0.1"),
        (lambda: MinP(min_p=2), "min_p: .*found 2"),
        (lambda: RepetitionPenalty(penalty=0), "penalty: .*found 0"),
        (lambda: TopK(k=5, temprature=1), "no such option.*options: k"),
        (lambda: TopP(q=0.5), "there is no such option"),
    ],
)
def test_wrong_options_are_named(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_options_are_named() -> None:
    with pytest.raises(TypeError, match=r"TopK\(name=value"):
        TopK(5)
    with pytest.raises(OptionError, match="there is no such option"):
        TopK(k=5, self=1)


def test_a_number_in_quotes_is_a_number() -> None:
    assert Temperature(temperature="0.7").temperature == 0.7


def test_a_tiny_temperature_gives_no_infinity() -> None:
    out = apply(Temperature(temperature=1e-8), [[30.0, 29.0, -30.0, 0.0]])
    assert out.isfinite().all() and out.argmax() == 0


# Against transformers' own classes, on rows with ties, holes and extremes.

_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_rows = st.lists(_values, min_size=9, max_size=9).filter(lambda row: max(row) > -INF)
_logits = st.lists(_rows, min_size=1, max_size=3)


@given(_logits, st.floats(0.0625, 5, width=32))
def test_temperature_as_transformers(logits, temperature: float) -> None:
    ours = apply(Temperature(temperature=temperature), logits)
    theirs = generation.TemperatureLogitsWarper(temperature)(None, torch.tensor(logits))
    assert torch.equal(ours, theirs)


@given(_logits, st.integers(1, 12))
def test_top_k_keeps_the_values_that_transformers_keeps(logits, k: int) -> None:
    """Ties at the border apart, which transformers keeps all."""
    ours = apply(TopK(k=k), logits)
    theirs = generation.TopKLogitsWarper(k)(None, torch.tensor(logits))
    assert torch.equal(ours.isfinite() & ~theirs.isfinite(), torch.zeros_like(ours).bool())
    for row, mine, other in zip(torch.tensor(logits), ours, theirs, strict=True):
        finite = int(row.isfinite().sum())
        assert int(mine.isfinite().sum()) == min(k, finite)
        border = mine[mine.isfinite()].min()
        assert torch.equal(mine > border, other > border)
        tied = (row == border).nonzero()[:, 0].tolist()
        kept_ties = (mine == border).nonzero()[:, 0].tolist()
        assert kept_ties == tied[: len(kept_ties)]


@given(_logits, st.floats(0.01, 0.99))
def test_top_p_keeps_what_transformers_keeps(logits, p: float) -> None:
    """Up to the rank of equal values and the rounding of its float32 sum."""
    ours = apply(TopP(p=p), logits)
    theirs = generation.TopPLogitsWarper(p)(None, torch.tensor(logits))
    for row, mine, other in zip(torch.tensor(logits), ours, theirs, strict=True):
        ranked = row.double().softmax(-1).sort(descending=True).values
        above = ranked.cumsum(-1) - ranked
        if (above - p).abs().min() > 1e-5:
            assert mine.sort().values.tolist() == other.sort().values.tolist()


@given(_logits, st.floats(0.0625, 1, width=32))
def test_min_p_keeps_what_transformers_keeps(logits, min_p: float) -> None:
    ours = apply(MinP(min_p=min_p), logits)
    theirs = generation.MinPLogitsWarper(min_p)(None, torch.tensor(logits))
    probs = torch.tensor(logits).double().softmax(-1)
    margin = (probs / probs.amax(-1, keepdim=True) - min_p).abs() > 1e-5
    assert torch.equal(ours.isfinite()[margin], theirs.isfinite()[margin])


@given(_logits, st.floats(0.125, 5, width=32), st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_repetition_penalty_as_transformers(logits, penalty: float, history) -> None:
    ours = apply(RepetitionPenalty(penalty=penalty), logits, [history] * len(logits))
    theirs = generation.RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([history] * len(logits)), torch.tensor(logits)
    )
    assert torch.equal(ours, theirs)


@given(_logits, st.sampled_from([Temperature(temperature=0.7), TopK(k=3), TopP(p=0.8),
                                 MinP(min_p=0.2)]))  # fmt: skip
def test_keeps_argmax_tells_the_truth(logits, processor) -> None:
    out = apply(processor, logits)
    assert torch.equal(out.argmax(-1), torch.tensor(logits).argmax(-1))
    assert processor.keeps_argmax


@given(_logits, st.integers(1, 9))
def test_top_k_after_top_k_is_the_smaller(logits, k: int) -> None:
    once = apply(TopK(k=min(k, 4)), logits)
    assert torch.equal(apply(TopK(k=k), apply(TopK(k=4), logits).tolist()), once)


# What the engines computed. tests/data/golden.jsonl holds the vectors of transformers and llama.cpp
# whose parameters mean what genkit means by them.

GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "golden.jsonl").read_text().splitlines()
]


def as_genkit(op: str, params: dict) -> LogitsProcessor:
    """The processor that an engine's vector asks for."""
    match op:
        case "temperature":
            return Temperature(temperature=params["temperature"])
        case "temp":
            return Temperature(temperature=params["t"])
        case "top_k":
            return TopK(k=params["k"])
        case "top_p":
            return TopP(p=params.get("top_p", params.get("p")))
        case "min_p":
            return MinP(min_p=params.get("min_p", params.get("p")))
        case "repetition_penalty":
            return RepetitionPenalty(penalty=params["penalty"])
    raise AssertionError(op)


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["id"]) for v in GOLDEN])
def test_golden(vector: dict) -> None:
    """Bit for bit; where equal values decided the same values, where rounding did the same mass."""
    logits, expected = (
        [[-INF if value is None else value for value in row] for row in vector[key]]
        for key in ("logits", "out_logits")
    )
    out = apply(as_genkit(vector["op"], vector["params"]), logits, vector.get("history"))
    for row, ours, theirs in zip(torch.tensor(logits), out, torch.tensor(expected), strict=True):
        if vector.get("border"):
            disputed = ours.isfinite() != theirs.isfinite()
            assert disputed.sum() <= 2 or row.double().softmax(-1)[disputed].sum() < 1e-5
        elif vector.get("tie_split"):
            assert ours.sort().values.tolist() == theirs.sort().values.tolist()
        else:
            assert ours.tolist() == theirs.tolist()
