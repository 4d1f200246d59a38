"""Greedy and categorical choice."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.samplers import Categorical, Greedy
from genkit.core.random import RowRandom
from genkit.core.run import Run


class FixedUniform:
    """A state whose random numbers are given."""

    def __init__(self, *numbers: float) -> None:
        self.rng = self
        self.numbers = numbers

    def uniform(self, purpose: str) -> torch.Tensor:
        return torch.tensor(self.numbers, dtype=torch.float64)


class Seeded:
    def __init__(self, rng: RowRandom) -> None:
        self.rng = rng


def draw(probs: list[float], u: float) -> int:
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=len(probs)))
    logits = torch.tensor([probs], dtype=torch.float64).log()
    return int(sampler(FixedUniform(u), logits))


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0], [0.0, -math.inf, 0.0]])
    assert Greedy()(None, logits).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("u", "token_id"),
    [(0.0, 1), (0.2, 1), (0.25, 3), (0.49, 3), (0.5, 4), (0.99, 4), (1 - 2**-53, 4)],
)
def test_the_first_running_mass_that_exceeds_u(u: float, token_id: int) -> None:
    """Ids of probability 0 are never drawn, at the edges of their neighbours neither."""
    assert draw([0, 0.25, 0, 0.25, 0.5, 0], u) == token_id


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=30), st.integers(0, 2**53 - 1))
def test_a_token_of_probability_zero_is_never_drawn(values: list[float], word: int) -> None:
    logits = torch.tensor([[-math.inf if v < 0 else v for v in values] + [-math.inf, 0.0]])
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=logits.shape[-1]))
    token_id = int(sampler(FixedUniform(word * 2.0**-53), logits))
    assert logits[0, token_id] > -math.inf


@pytest.mark.parametrize("row", [[-math.inf] * 3, [0.0, math.nan, 0.0], [0.0, math.inf, 0.0]])
def test_a_row_that_nothing_can_be_drawn_from(row: list[float]) -> None:
    logits = torch.tensor([row, [0.0, 0.0, 0.0]])
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=3))
    assert sampler(FixedUniform(0.5, 0.5), logits).tolist() == [-1, 1]


def test_frequencies_are_the_probabilities() -> None:
    rows = 40_000
    probs = torch.tensor([0.6, 0.3, 0.0, 0.1])
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=4, purpose="categorical:0"))
    ids = sampler(Seeded(RowRandom(range(rows), [0] * rows)), probs.log().expand(rows, -1))
    counts = torch.bincount(ids, minlength=4)
    assert counts[2] == 0
    expected = rows * probs[[0, 1, 3]]
    assert ((counts[[0, 1, 3]] - expected) ** 2 / expected).sum() < 13.8  # chi-square, 1 in 1000
