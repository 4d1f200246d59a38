"""The runs that are always tried."""

import torch

from genkit.testing.checks.edge_histories import edge_histories
from genkit.testing.laws.history import History


def allowed(history: History) -> list[int]:
    """The ids that are allowed in each of its steps."""
    masks = [history.logits(step).isfinite()[0] for step in range(history.num_steps)]
    assert all(torch.equal(mask, masks[0]) for mask in masks)
    return masks[0].nonzero()[:, 0].tolist()


def test_each_id_that_matters_is_once_the_only_one_and_the_last_one() -> None:
    histories = edge_histories(9, favoured=[3, 5])
    alone = {tuple(allowed(h)) for h in histories if h.state(1).last_ids.tolist() == allowed(h)}
    assert alone == {(3,), (5,), (1,), (8,)}  # the favoured ones, the end token and the last id


def test_it_is_also_the_only_one_after_another_and_one_of_two() -> None:
    histories = edge_histories(9, favoured=[3])[:3]
    assert [allowed(h) for h in histories] == [[3], [3], [3, 4]]
    assert [h.rows[0].prompt for h in histories] == [(3,), (4,), (4, 3)]


def test_at_last_just_the_favoured_ones_are_allowed() -> None:
    assert allowed(edge_histories(9, favoured=[2, 3, 5, 6, 7, 99])[-1]) == [2, 3, 5, 6, 7]


def test_a_vocabulary_may_have_one_id() -> None:
    assert [allowed(h) for h in edge_histories(1)] == [[0], [0]]
