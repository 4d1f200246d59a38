"""Limits of length."""

import pytest

from genkit.components.stopping import MaxLength, MaxNewTokens
from genkit.errors import OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel


@pytest.mark.parametrize("prompt_length", [1, 4, 5, 6])
def test_the_same_limit_whatever_the_prompt(prompt_length: int) -> None:
    """LEN-03, LEN-09: a limit counts tokens, nothing else."""
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[MaxNewTokens(limit=5)])
    assert len(pipeline.generate([0] * prompt_length).token_ids) == 5
    other = Pipeline(model, stop_criteria=[])
    assert len(other.generate([0] * prompt_length, max_new_tokens=5).token_ids) == 5


def test_max_length_counts_the_prompt_and_no_padding() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[MaxLength(limit=6)])
    results = pipeline.generate([[0], [0, 0, 0]])
    assert [len(result.token_ids) for result in results] == [5, 3]
    assert {result.finish_reason for result in results} == {"length"}


def test_contradictory_lengths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"max_new_tokens 9 .* max_length 9"):
        Pipeline(
            ScriptedModel.of_ids([1], 3), stop_criteria=[MaxNewTokens(limit=9), MaxLength(limit=9)]
        )
    with pytest.raises(UnsupportedError, match="max_new_tokens is given twice"):
        Pipeline(
            ScriptedModel.of_ids([1], 3),
            stop_criteria=[MaxNewTokens(limit=9), MaxNewTokens(limit=8)],
        )
    pipeline = Pipeline(ScriptedModel.of_ids([1], 3), stop_criteria=[MaxLength(limit=9)])
    with pytest.raises(UnsupportedError, match="max_new_tokens 50 can never"):
        pipeline.generate([0], max_new_tokens=50)


@pytest.mark.parametrize(
    "make", [lambda: MaxNewTokens(limit=0), lambda: MaxLength(limit=1)], ids=["new", "length"]
)
def test_limits_out_of_range(make) -> None:
    with pytest.raises(OptionError):
        make()
