"""What a draw changes, and how it is taken back."""

import torch

from genkit.components.samplers.draw_trail import DrawTrail
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(-1)


def two_rows() -> tuple[DrawTrail, GenerationState]:
    state = GenerationState([[0], [0]], [100, 100], RowRandom([0, 1], [0, 0]))
    return DrawTrail(column(1.0, 2.0)), state


def ids(*token_ids: int) -> torch.Tensor:
    return torch.tensor(token_ids)


def test_only_a_token_that_comes_changes_something() -> None:
    trail, state = two_rows()
    trail.drawn(state, ids(5, 6), column(10.0, 20.0))
    assert torch.equal(trail.at(state), column(1.0, 2.0))
    state.append(ids(5, 7))
    assert torch.equal(trail.at(state), column(10.0, 2.0))


def test_a_step_asked_for_twice_counts_once() -> None:
    trail, state = two_rows()
    for numbers in ((10.0, 20.0), (11.0, 21.0)):
        trail.drawn(state, ids(5, 6), column(*numbers))
    state.append(ids(5, 6))
    assert torch.equal(trail.at(state), column(11.0, 21.0))
    assert torch.equal(trail.at(state), column(11.0, 21.0))


def test_rows_that_move_take_their_numbers_along() -> None:
    trail, state = two_rows()
    trail.drawn(state, ids(5, 6), column(10.0, 20.0))
    state.append(ids(5, 6))
    trail.reorder([1, 0, 1])
    state.reorder([1, 0, 1])
    assert torch.equal(trail.at(state), column(20.0, 10.0, 20.0))
    trail.rewind(1)
    assert torch.equal(trail.last, column(2.0, 1.0, 2.0))


def test_any_number_of_tokens_can_be_taken_back() -> None:
    trail, state = two_rows()
    for step in range(20):
        assert torch.equal(trail.at(state), column(1.0 + step, 2.0 + step))
        trail.drawn(state, ids(5, 6), trail.last + 1)
        state.append(ids(5, 6))
    trail.rewind(0)
    trail.rewind(3)  # the last of them had not been settled yet
    assert torch.equal(trail.last, column(18.0, 19.0))
    trail.rewind(7)
    assert torch.equal(trail.last, column(11.0, 12.0))


def after(num_tokens: int) -> GenerationState:
    """A state like that of `two_rows`, with as many columns of 5 and 6."""
    _, state = two_rows()
    for _ in range(num_tokens):
        state.append(ids(5, 6))
    return state


def test_a_draw_that_has_not_come_is_taken_back_with_no_token() -> None:
    trail, _ = two_rows()
    for step in range(4):
        trail.drawn(after(step), ids(5, 6), trail.at(after(step)) + 1)
    trail.rewind(2)
    assert torch.equal(trail.at(after(1)), column(2.0, 3.0))


def test_tokens_that_nothing_was_drawn_for_change_nothing() -> None:
    trail, state = two_rows()
    trail.drawn(state, ids(5, 6), trail.at(state) + 1)
    assert torch.equal(trail.at(after(3)), column(2.0, 3.0))  # the first is the one drawn
    trail.rewind(2)
    assert torch.equal(trail.at(after(1)), column(2.0, 3.0))
    trail.rewind(1)
    assert torch.equal(trail.at(after(0)), column(1.0, 2.0))
