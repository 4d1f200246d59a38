"""The loop over bare callables: order of events, rows that leave, failures, clean-up."""

import math

import pytest
import torch

from genkit.components.caches import Dynamic, NoCache
from genkit.core.loop import autoregressive
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import EmptyRowError, ModelOutputError, PartError
from genkit.testing import ScriptedModel


def make_state(*prompts: list[int]) -> GenerationState:
    rng = RowRandom([0] * len(prompts), [0] * len(prompts))
    return GenerationState(prompts, [50] * len(prompts), rng)


def greedy(state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


def at_id(token_id: int):
    return lambda state: state.last_ids == token_id


class Recorder(Dynamic):
    """A manager that notes what it is asked."""

    def acquire(self, model, state):
        events.append("acquire")
        return super().acquire(model, state)

    def release(self, cache, state):
        events.append(("release", cache.length, state.rows.tolist()))


events: list = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


def test_prefill_feeds_the_prompt_and_decode_one_token() -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8)
    steps = list(autoregressive(model, Recorder(), [], greedy, [at_id(2)], make_state([5, 6, 7])))
    assert [int(step.next_ids) for step in steps] == [3, 1, 2]
    assert [fed.tolist() for fed in model.fed] == [[[5, 6, 7]], [[3]], [[1]]]
    assert events == ["acquire", ("release", 5, [0])]


def test_without_a_cache_everything_is_fed_again() -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8)
    list(autoregressive(model, NoCache(), [], greedy, [at_id(2)], make_state([5, 6, 7])))
    assert [fed.shape[1] for fed in model.fed] == [3, 4, 5]


def test_processors_apply_in_order_and_the_step_has_both_ends() -> None:
    model = ScriptedModel.of_ids([3], 8)
    seen = []

    def double(state, logits):
        seen.append("double")
        return logits * 2

    def shift(state, logits):
        seen.append("shift")
        return logits + 1

    (step,) = autoregressive(model, Dynamic(), [double, shift], greedy, [at_id(3)], make_state([1]))
    assert seen == ["double", "shift"]
    assert float(step.raw_logits[0, 3]) == 10 and float(step.logits[0, 3]) == 21


def test_a_row_that_ends_leaves_and_the_others_go_on() -> None:
    script = torch.nn.functional.one_hot(torch.tensor([[1, 2, 4], [4, 0, 0], [1, 4, 0]]), 8)
    model = ScriptedModel(10.0 * script)
    steps = list(
        autoregressive(model, Recorder(), [], greedy, [at_id(4)], make_state([5], [6, 7], [1]))
    )
    assert [step.rows.tolist() for step in steps] == [[0, 1, 2], [0, 2], [0]]
    assert [step.next_ids.tolist() for step in steps] == [[1, 4, 1], [2, 4], [4]]
    assert [step.finished.tolist() for step in steps] == [
        [False, True, False],
        [False, True],
        [True],
    ]
    assert events[-1] == ("release", 4, [0])


def test_the_first_criterion_in_the_list_is_the_reason() -> None:
    class Named:
        def __init__(self, name: str, reason: str) -> None:
            self.name, self.finish_reason = name, reason

        def __call__(self, state):
            return torch.tensor([True])

        def report(self, state, i):
            return {"matched": int(state.last_ids[i]), "position": 0}

    model = ScriptedModel.of_ids([3], 8)
    criteria = [at_id(7), Named("first", "time"), Named("second", "stop")]
    (step,) = autoregressive(model, Dynamic(), [], greedy, criteria, make_state([1]))
    (stop,) = step.stops
    assert (stop.criterion, stop.finish_reason, stop.matched) == ("first", "time", 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("step", [0, 2])
def test_nan_from_the_model_names_the_step_and_row(bad: float, step: int) -> None:
    script = torch.zeros(2, 4, 8)
    script[1, step, 3] = bad
    model = ScriptedModel(script)
    steps = autoregressive(
        model, Recorder(), [lambda state, logits: logits], greedy, [at_id(7)], make_state([1], [2])
    )
    with pytest.raises(ModelOutputError, match=f"row 1, step {step}: the model gave"):
        list(steps)
    assert events[-1][0] == "release"


def test_a_row_without_a_token_names_the_processor() -> None:
    def forbid(state, logits):
        return torch.full_like(logits, -math.inf)

    forbid.name = "forbidder"
    model = ScriptedModel.of_ids([3], 8)
    steps = autoregressive(
        model, Dynamic(), [lambda s, x: x, forbid], greedy, [at_id(7)], make_state([1])
    )
    with pytest.raises(EmptyRowError, match="forbidder.*no token.*8 tokens were allowed"):
        next(steps)


def test_nan_from_a_processor_names_it() -> None:
    def spoil(state, logits):
        return logits * math.nan

    model = ScriptedModel.of_ids([3], 8)
    steps = autoregressive(model, Dynamic(), [spoil], greedy, [at_id(7)], make_state([1]))
    with pytest.raises(PartError, match="'spoil'.*NaN"):
        next(steps)


def test_a_sampler_that_chooses_a_forbidden_token_is_named() -> None:
    def stubborn(state, logits):
        return torch.zeros(len(state), dtype=torch.int64)

    model = ScriptedModel([[-math.inf, 1.0, 2.0]])
    steps = autoregressive(model, Dynamic(), [], stubborn, [at_id(7)], make_state([1]))
    with pytest.raises(PartError, match="'stubborn' chose a token that is forbidden"):
        next(steps)


def test_closing_early_releases_the_cache() -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8)
    steps = autoregressive(model, Recorder(), [], greedy, [at_id(2)], make_state([5]))
    next(steps)
    steps.close()
    assert events == ["acquire", ("release", 1, [0])]


def test_an_interrupt_in_a_part_passes_and_releases_the_cache() -> None:
    def interrupt(state, logits):
        raise KeyboardInterrupt

    model = ScriptedModel.of_ids([3], 8)
    with pytest.raises(KeyboardInterrupt):
        list(autoregressive(model, Recorder(), [interrupt], greedy, [], make_state([5])))
    assert events[-1][0] == "release"


@pytest.mark.parametrize("token_id", [8, 10**6, -1, -7])
def test_a_sampler_that_chooses_no_token_of_the_model_is_named(token_id: int) -> None:
    def lost(state, logits):
        return torch.full((len(state),), token_id)

    steps = autoregressive(
        ScriptedModel.of_ids([3], 8), Dynamic(), [], lost, [at_id(7)], make_state([1])
    )
    with pytest.raises(PartError, match="'lost' chose a token that is forbidden, or none"):
        next(steps)
