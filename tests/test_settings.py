"""What a result says about the values it was made with, and who says each of them."""

from __future__ import annotations

import pytest

from genkit import Pipeline, processors, samplers, stopping
from genkit.testing import ScriptedModel


def said(result) -> dict[str, tuple[object, str]]:
    """Value and source of each setting, by its path."""
    return {setting.name: (setting.value, setting.source) for setting in result.settings}


def pipeline(**options) -> Pipeline:
    model = ScriptedModel([[0.5, 0.25, 0.125, 0.125]])
    return Pipeline(model, processors=[processors.MinP(min_p=0.25)], **options)


def test_a_result_shows_the_chain_that_ran() -> None:
    """TRUNC-15."""
    found = said(pipeline().generate([1], max_new_tokens=1))
    assert found["processors.0.type"] == ("min_p", "given")
    assert found["processors.0.min_p"] == (0.25, "given")
    assert found["processors.0.min_keep"] == (1, "default")
    assert found["sampler.type"] == ("greedy", "default")
    assert found["cache.type"] == ("dynamic", "default")
    assert found["stop_criteria.0.type"] == ("eos", "default")
    assert found["stop_criteria.1.limit"] == (1, "call")


def test_a_callable_has_its_name() -> None:
    def twice(state, logits):
        return logits * 2

    model = ScriptedModel([[0.0, 1.0]])
    result = Pipeline(model, processors=[twice]).generate([1], max_new_tokens=1)
    assert said(result)["processors.0.type"] == ("twice", "given")


def test_no_part_at_all_is_said_too() -> None:
    chosen = pipeline(stop_criteria=[])
    assert said(chosen)["stop_criteria"] == ([], "given")
    assert "stop_criteria" not in said(chosen.generate([1], max_new_tokens=1))


@pytest.mark.parametrize("criteria", [[], [stopping.MaxNewTokens(limit=9)]])
def test_a_call_replaces_what_the_recipe_says(criteria) -> None:
    result = pipeline(stop_criteria=criteria).generate([1], max_new_tokens=1)
    assert said(result)["stop_criteria.0.limit"] == (1, "call")
    assert len([name for name in said(result) if name.endswith("limit")]) == 1


def test_the_sampler_that_was_given() -> None:
    assert said(pipeline(sampler=samplers.Greedy()))["sampler.type"] == ("greedy", "given")


def test_the_seed_and_who_gave_it() -> None:
    drawn = pipeline(sampler=samplers.Categorical(), seed=5)
    assert said(drawn)["seed"] == (5, "given")
    assert said(drawn.generate([1], max_new_tokens=1))["seed"] == (5, "given")
    assert said(drawn.generate([1], seed=3, max_new_tokens=1))["seed"] == (3, "call")
    for result in drawn.generate([[1], [2]], seeds=[3, 4], max_new_tokens=1):
        assert said(result)["seed"] == ([3, 4], "call")
    assert said(pipeline())["seed"] == (None, "default")
