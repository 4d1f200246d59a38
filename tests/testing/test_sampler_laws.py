"""Every built-in sampler keeps the laws, and each law catches a sampler that breaks it."""

import math
from typing import Literal

import pytest
import torch

from genkit.components.base import Sampler
from genkit.components.samplers import Categorical, Greedy
from genkit.core.contracts import name_of
from genkit.kit import Kit
from genkit.testing import LawBroken, check_sampler

BUILT_IN = [(Greedy(), False), (Categorical(), True)]


def test_every_registered_sampler_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("sampler")}
    assert {part.type for part, _ in BUILT_IN} == registered


@pytest.mark.parametrize(("part", "distribution"), BUILT_IN, ids=["greedy", "categorical"])
def test_built_in_samplers_keep_the_laws(part: Sampler, distribution: bool) -> None:
    check_sampler(part, distribution=distribution)


def draw(uniform: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The first token whose running mass exceeds the number."""
    running = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
    ids = torch.searchsorted(running, (uniform * running[:, -1])[:, None], right=True)[:, 0]
    return ids.masked_fill(running[:, -1].isnan(), -1)


def test_a_plain_callable_may_be_a_sampler() -> None:
    check_sampler(
        lambda state, logits: draw(state.rng.uniform("mine"), logits),
        distribution=True,
        max_examples=50,
    )


def uses_torch_rand(state, logits):
    return draw(torch.rand(len(logits), dtype=torch.float64), logits)


def moves_numpy(state, logits):
    import numpy as np

    np.random.rand()
    return logits.argmax(-1)


def reads_numpy(state, logits):
    """It peeks at the generator without moving it."""
    import numpy as np

    odd = int(np.random.get_state()[1][0]) % 2
    return logits.argmax(-1) if odd else draw(torch.zeros(len(logits)).double(), logits)


def draws_a_forbidden_token(state, logits):
    """Where there is one."""
    forbidden = logits == -math.inf
    return torch.where(forbidden.any(-1), forbidden.int().argmax(-1), logits.argmax(-1))


def draws_beyond_the_vocabulary(state, logits):
    return logits.argmax(-1) + logits.shape[-1]


def gives_up(state, logits):
    return torch.full((len(logits),), -1)


def overlooks_nan(state, logits):
    return logits.nan_to_num(nan=-math.inf).argmax(-1)


def gives_int32(state, logits):
    return logits.argmax(-1).int()


def keeps_the_dimension(state, logits):
    return logits.argmax(-1, keepdim=True)


def draws_by_the_row(state, logits):
    """The same number for all seeds, another for each place in the batch."""
    return draw(torch.linspace(0.1, 0.9, len(logits)).double(), logits)


def draws_by_the_column(state, logits):
    return draw(torch.full((len(logits),), state.length % 7 / 7).double(), logits)


class Counts(Sampler):
    """Each run counts its rows' steps by itself, and does not follow rows that leave."""

    type: Literal["counts"] = "counts"

    def bind(self, run):
        return self.bound(run)

    class bound:
        def __init__(self, run):
            self.sums = torch.tensor([sum(prompt) for prompt in run.prompts]).double()

        def __call__(self, state, logits):
            return draw((self.sums[: len(logits)] % 10) / 10, logits)

        def reorder(self, indices):
            pass


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        (uses_torch_rand, "gives_the_same_again"),
        (moves_numpy, "uses_no_global_generator"),
        (reads_numpy, "uses_no_global_generator"),
        (draws_a_forbidden_token, "draws_what_is_allowed"),
        (draws_beyond_the_vocabulary, "draws_what_is_allowed"),
        (gives_up, "draws_what_is_allowed"),
        (overlooks_nan, "shows_what_cannot_be_drawn"),
        (gives_int32, "gives_one_id_a_row"),
        (keeps_the_dimension, "gives_one_id_a_row"),
        (draws_by_the_row, "does_not_depend_on_company"),
        (draws_by_the_column, "does_not_depend_on_padding"),
        (Counts(), "follows_rows_that_leave"),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_broken_sampler_is_caught_by_its_law(part, broken: str) -> None:
    with pytest.raises(LawBroken) as caught:
        check_sampler(part)
    assert caught.value.law == broken


def prefers_extremes(state, logits):
    """Keeps every law but that of frequencies: numbers are pushed away from the middle."""
    uniform = state.rng.uniform("mine")
    return draw(torch.where(uniform < 0.5, uniform * 0.9, uniform), logits)


def uses_one_number_for_all_seeds(state, logits):
    return draw(torch.full((len(logits),), 0.5).double(), logits)


@pytest.mark.parametrize("part", [prefers_extremes, uses_one_number_for_all_seeds])
def test_wrong_frequencies_are_caught_where_they_are_promised(part) -> None:
    check_sampler(part, max_examples=20)
    with pytest.raises(LawBroken, match="are expected") as caught:
        check_sampler(part, max_examples=20, distribution=True)
    assert caught.value.law == "draws_by_probability"
