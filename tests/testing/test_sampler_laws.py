"""Every built-in sampler keeps the laws, and each law catches a sampler that breaks it."""

import math
from typing import Literal

import pytest
import torch

from genkit.components.base import Sampler
from genkit.components.caches import Dynamic
from genkit.components.samplers import AdaptiveP, Categorical, Greedy, Mirostat
from genkit.core.contracts import name_of
from genkit.kit import Kit
from genkit.testing import LawBroken, check_sampler
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.sampler import DRAWS_BY_PROBABILITY, SAMPLER_LAWS

BUILT_IN = [
    (Greedy(), False),
    (Categorical(), True),
    (Mirostat(), False),
    (AdaptiveP(target=0.3), False),
]


def test_every_registered_sampler_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("sampler")}
    assert {part.type for part, _ in BUILT_IN} == registered


@pytest.mark.parametrize(
    ("part", "distribution"), BUILT_IN, ids=[part.type for part, _ in BUILT_IN]
)
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


def gives_nothing(state, logits):
    pass


def raises(state, logits):
    raise KeyError("oops")


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
        (uses_torch_rand, "uses no global generator"),
        (moves_numpy, "uses no global generator"),
        (reads_numpy, "uses no global generator"),
        (draws_a_forbidden_token, "draws what is allowed"),
        (draws_beyond_the_vocabulary, "draws what is allowed"),
        (gives_up, "draws what is allowed"),
        (gives_nothing, "gives one id a row"),
        (raises, "runs without an error"),
        (overlooks_nan, "shows what cannot be drawn"),
        (gives_int32, "gives one id a row"),
        (keeps_the_dimension, "gives one id a row"),
        (draws_by_the_row, "does not depend on company"),
        (draws_by_the_column, "does not depend on padding"),
        (Counts(), "follows rows that leave"),
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
    assert caught.value.law == "draws by probability"


def test_the_laws_that_were_tried_are_returned() -> None:
    assert check_sampler(Greedy(), max_examples=1) == list(SAMPLER_LAWS)
    laws = check_sampler(Categorical(), distribution=True, max_examples=1)
    assert laws == [*SAMPLER_LAWS, DRAWS_BY_PROBABILITY]


@pytest.mark.parametrize("logit", [-math.inf, math.nan, math.inf])
def test_greedy_shows_by_its_choice_that_nothing_can_be_drawn(logit: float) -> None:
    # It gives no -1: the loop looks at the logit of the id, and that is not finite.
    history = History((Row((0,), (0,), torch.full((1, 3), logit)),))
    token_id = int(Greedy()(history.state(), history.logits(0)))
    assert not history.logits(0)[0, token_id].isfinite()


@pytest.mark.parametrize("part", [Greedy, Dynamic, Dynamic()], ids=repr)
def test_what_is_no_sampler_is_refused_before_any_law(part) -> None:
    with pytest.raises(TypeError, match="is a class; give an object|is a cache_manager, and a"):
        check_sampler(part)
