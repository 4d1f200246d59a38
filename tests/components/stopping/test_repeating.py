"""Texts that go round in circles."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.stopping import Repeating
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import OptionError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, check_stop_criterion


def steps_until_the_end(part: Repeating, ids: list[int], prompt: list[int]) -> int | None:
    """After how many tokens a row ends; None: it does not."""
    run = Run((tuple(prompt),), (0,), (0,), (999,), (0,), vocab_size=20)
    bound, state = part.bind(run), GenerationState([prompt], [999], RowRandom([0], [0]))
    for count, token_id in enumerate(ids, 1):
        state.append(torch.tensor([token_id]))
        if bound(state):
            return count
    return None


@pytest.mark.parametrize(
    ("ids", "max_period", "times", "min_period", "steps"),
    [
        ([5, 5, 5], 1, 3, 1, 3),
        ([5, 5, 6, 5, 5, 5], 1, 3, 1, 6),
        ([1, 5, 7, 5, 7, 5, 7], 2, 3, 1, 7),
        ([5, 7, 5, 7, 5, 7], 1, 3, 1, None),
        ([5, 5, 5, 5, 5, 5], 3, 2, 2, 4),
        ([5, 5, 5, 5, 5, 5], 3, 2, 3, 6),
        ([1, 2, 3, 4, 1, 2, 3, 4], 4, 2, 1, 8),
        ([1, 2, 3, 4, 1, 2, 3, 4], 3, 2, 1, None),
        ([1, 2, 1, 3, 1, 2, 1, 3], 9, 2, 1, 8),
        ([1, 2], 2, 2, 1, None),
    ],
)
def test_when_a_row_ends(ids, max_period, times, min_period, steps) -> None:
    part = Repeating(max_period=max_period, times=times, min_period=min_period)
    assert steps_until_the_end(part, ids, [1]) == steps


def test_the_prompt_does_not_count() -> None:
    assert steps_until_the_end(Repeating(max_period=2, times=2), [5, 6, 7], [5, 5, 5]) is None
    assert steps_until_the_end(Repeating(max_period=2, times=2), [5, 7, 5, 7], [5, 7]) == 4


def repeats(ids: list[int], periods, times: int) -> bool:
    return any(
        len(ids) >= period * times and ids[-period * times :] == ids[-period:] * times
        for period in periods
    )


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.integers(1, 6),
    st.integers(2, 4),
    st.data(),
)
def test_it_is_the_first_time_that_the_tail_repeats(ids, max_period, times, data) -> None:
    min_period = data.draw(st.integers(1, max_period))
    part = Repeating(max_period=max_period, times=times, min_period=min_period)
    periods = range(min_period, max_period + 1)
    sizes = (size for size in range(1, len(ids) + 1) if repeats(ids[:size], periods, times))
    assert steps_until_the_end(part, ids, [1, 1]) == next(sizes, None)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=30), st.data())
def test_tokens_taken_back_have_never_been(ids, data) -> None:
    part = Repeating(max_period=3, times=3)
    run = Run(((1,),), (0,), (0,), (999,), (0,), vocab_size=20)
    bound, state = part.bind(run), GenerationState([[1]], [999], RowRandom([0], [0]))
    marks = []
    for token_id in ids:
        state.append(torch.tensor([token_id]))
        marks.append(bool(bound(state)))
    count = data.draw(st.integers(1, len(ids)))
    bound.rewind(count)
    state = GenerationState([[1]], [999], RowRandom([0], [0]))
    for i, token_id in enumerate(ids):
        state.append(torch.tensor([token_id]))
        if i >= len(ids) - count:
            assert bool(bound(state)) == marks[i]


def test_the_report_names_the_shortest_block_and_nothing_is_cut() -> None:
    tokenizer = ByteTokenizer()
    model = ScriptedModel.of_ids(tokenizer.encode("xabababab"), 260, tokenizer=tokenizer)
    pipeline = Pipeline(model, stop_criteria=[Repeating(max_period=4, times=3)])
    result = pipeline.generate([0], max_new_tokens=9)
    assert result.text == "xababab"
    assert (result.finish_reason, result.stop.criterion) == ("stop", "repeating")
    assert (result.stop.matched, result.stop.position) == ([ord("a"), ord("b")], 1)


@pytest.mark.parametrize(
    "part",
    [
        Repeating(max_period=2, times=2),
        Repeating(max_period=3, times=2, min_period=2),
        Repeating(max_period=1, times=3),
    ],
    ids=repr,
)
def test_the_laws(part: Repeating) -> None:
    check_stop_criterion(part, vocab_size=2, max_examples=30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_period": 0, "times": 2}, "max_period"),
        ({"max_period": 2, "times": 1}, "times"),
        ({"max_period": 2}, "times"),
        ({"max_period": 2, "times": 2, "min_period": 3}, "min_period 3 is above max_period 2"),
        ({"max_period": 2000, "times": 2}, "max_period"),
    ],
)
def test_options_out_of_range(options, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Repeating(**options)
