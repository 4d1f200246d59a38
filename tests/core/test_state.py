"""The rectangle, its rows and its padding."""

import pytest
import torch

from genkit.core.random import RowRandom
from genkit.core.state import GenerationState


def make(*prompts: list[int], limit: int = 300) -> GenerationState:
    rng = RowRandom([0] * len(prompts), [0] * len(prompts))
    return GenerationState(prompts, [limit] * len(prompts), rng)


def test_rows_are_left_padded_and_know_no_padding() -> None:
    state = make([7, 3], [5, 1, 8])
    state.append(torch.tensor([9, 2]))
    assert state.token_ids[:, 1:].tolist() == [[7, 3, 9], [1, 8, 2]]
    assert state.starts.tolist() == [1, 0]
    assert state.is_token.tolist() == [[False, True, True, True], [True] * 4]
    assert state.row(0).tolist() == [7, 3, 9]
    assert state.prompt_row(0).tolist() == [7, 3]
    assert state.generated_row(1).tolist() == [2]
    assert state.num_generated.tolist() == [1, 1]
    assert state.num_tokens.tolist() == [3, 4]
    assert state.last_ids.tolist() == [9, 2]


@pytest.mark.parametrize("count", [1, 62, 63, 64, 65, 127, 128, 129, 200])
def test_any_number_of_tokens(count: int) -> None:
    """The buffer grows in blocks; nothing may be lost at their edges."""
    state = make([1, 2])
    for token_id in range(count):
        state.append(torch.tensor([token_id]))
    assert state.generated_row(0).tolist() == list(range(count))
    assert state.row(0).tolist() == [1, 2, *range(count)]


def test_reorder_moves_everything() -> None:
    state = make([7, 3], [5, 1, 8], [4])
    state.append(torch.tensor([1, 2, 3]))
    state.reorder([2, 0])
    state.append(torch.tensor([8, 9]))
    assert [state.row(i).tolist() for i in range(2)] == [[4, 3, 8], [7, 3, 1, 9]]
    assert state.rows.tolist() == [2, 0]
    assert len(state) == 2


def test_max_length_is_the_last_column_that_can_be_reached() -> None:
    rng = RowRandom([0, 0], [0, 0])
    state = GenerationState([[1], [1, 2, 3]], [10, 5], rng)
    assert state.max_length == 2 + 10
    assert state.ends.tolist() == [12, 5]
