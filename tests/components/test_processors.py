"""The repetition penalty by hand and against transformers, and how options are refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import generation

from genkit.components.base import LogitsProcessor
from genkit.components.processors import RepetitionPenalty, Temperature, TopK, TopP
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


# Against transformers' own classes, on rows with ties, holes and extremes.

_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_rows = st.lists(_values, min_size=9, max_size=9).filter(lambda row: max(row) > -INF)
_logits = st.lists(_rows, min_size=1, max_size=3)


@given(_logits, st.floats(0.125, 5, width=32), st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_repetition_penalty_as_transformers(logits, penalty: float, history) -> None:
    ours = apply(RepetitionPenalty(penalty=penalty), logits, [history] * len(logits))
    theirs = generation.RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([history] * len(logits)), torch.tensor(logits)
    )
    assert torch.equal(ours, theirs)
