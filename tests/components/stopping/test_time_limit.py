"""A limit of time."""

import time

import pytest

from genkit.components.stopping import MaxNewTokens, TimeLimit
from genkit.errors import OptionError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel


def test_time_limit() -> None:
    model = ScriptedModel.of_ids([1], 3)
    slow = [lambda state, logits: time.sleep(0.02) or logits]
    pipeline = Pipeline(model, processors=slow, stop_criteria=[TimeLimit(seconds=0.05)])
    result = pipeline.generate([0])
    assert result.finish_reason == "time" and 1 <= len(result.token_ids) <= 4


def test_the_time_counts_from_the_prefill_and_for_all_rows() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[TimeLimit(seconds=0.2), MaxNewTokens(limit=5)])
    steps = pipeline.decode([0])
    time.sleep(0.3)
    assert len(list(steps)) == 5

    model.supports = frozenset()  # so that rows run one after the other
    slow = [lambda state, logits: time.sleep(0.02) or logits]
    pipeline = Pipeline(model, processors=slow, stop_criteria=[TimeLimit(seconds=0.1)])
    results = pipeline.generate([[0], [0], [0]])
    assert [result.finish_reason for result in results] == ["time"] * 3
    assert [len(result.token_ids) for result in results[1:]] == [1, 1]


def test_no_time_is_refused() -> None:
    with pytest.raises(OptionError):
        TimeLimit(seconds=0)
