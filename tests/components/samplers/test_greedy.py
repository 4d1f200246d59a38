"""The most probable token."""

import math

import pytest
import torch

from genkit.components.samplers import Greedy


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0], [0.0, -math.inf, 0.0]])
    assert Greedy()(None, logits).tolist() == [1, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_not_passed_over(bad: float) -> None:
    """It chooses the token whose logit shows the loop that the step has failed."""
    logits = torch.tensor([[1.0, bad, 5.0]])
    assert Greedy()(None, logits).tolist() == [1]
