"""Draws by the inverse of the distribution function."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.processors import TopK
from genkit.components.samplers import Categorical
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


def test_a_masked_token_is_never_drawn_from_many_rows() -> None:
    """NAN-07: 200,000 rows of a token that is forbidden and one that is certain."""
    rows = 200_000
    logits = torch.tensor([[-math.inf, 0.0]]).expand(rows, -1)
    numbers = torch.rand(rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=2))
    ids = sampler(FixedUniform(0.0, 1 - 2**-53, *numbers[2:].tolist()), logits)
    assert bool((ids == 1).all())


def test_only_what_top_k_leaves_is_drawn_from_a_large_vocabulary() -> None:
    """NAN-07: the numbers at the border of each token's share too, where a draw may go astray."""
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0))
    left = TopK(k=40)(None, logits)
    running = left.softmax(-1, dtype=torch.float64).cumsum(-1)[0].unique()
    steps = [running, running.nextafter(torch.zeros(())), running.nextafter(torch.ones(()))]
    numbers = torch.cat([*steps, torch.linspace(0, 1, 80)]).clamp(0, 1 - 2**-53)
    sampler = Categorical().bind(Run((), (), (), (), (), vocab_size=50_000))
    ids = sampler(FixedUniform(*numbers.tolist()), left.expand(len(numbers), -1))
    assert bool(left[0, ids].isfinite().all())
    assert set(ids.tolist()) == set(left[0].isfinite().nonzero()[:, 0].tolist())
