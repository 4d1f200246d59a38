"""What `genkit recipes check` warns about."""

import pytest

from genkit.recipes.order import order_warnings

BOUNDED = [{"type": "eos"}, {"type": "answer_limit", "limit": 5}]
TEMPERATURE = {"type": "temperature", "temperature": 0.8}
TOP_K = {"type": "top_k", "k": 5}
TOP_P = {"type": "top_p", "p": 0.9}
MIN_P = {"type": "min_p", "min_p": 0.1}
PENALTY = {"type": "repetition_penalty", "penalty": 1.1}


@pytest.fixture
def warnings(kit):
    def warnings(processors, sampler="categorical", stop_criteria=BOUNDED):
        recipe = {
            "version": 1,
            "backend": {"type": "fake", "model": "m"},
            "processors": processors,
            "sampler": {"type": sampler},
            "stop_criteria": stop_criteria,
        }
        return order_warnings(kit.recipe(recipe))

    return warnings


def test_the_usual_order_is_fine(warnings):
    assert warnings([PENALTY, TEMPERATURE, TOP_K, TOP_P]) == []


@pytest.mark.parametrize("first", [TOP_P, MIN_P])
def test_a_truncation_that_the_temperature_would_change_comes_after_it(warnings, first):
    [warning] = warnings([first, TEMPERATURE])
    assert f"processors.0 ({first['type']}) comes before processors.1 (temperature)" in warning


def test_top_k_keeps_the_same_tokens_at_any_temperature(warnings):
    assert warnings([TOP_K, TEMPERATURE]) == []


@pytest.mark.parametrize("first", [TOP_K, TOP_P, MIN_P])
def test_a_penalty_after_a_truncation_comes_too_late(warnings, first):
    [warning] = warnings([first, PENALTY])
    assert "cannot bring back" in warning


def test_the_same_processor_twice(warnings):
    [warning] = warnings([TOP_K, TOP_K])
    assert "processors.0 and processors.1 are the same top_k" in warning


def test_greedy_makes_what_keeps_the_most_probable_token_idle(warnings):
    found = warnings([PENALTY, TEMPERATURE, TOP_K], sampler="greedy")
    assert [warning.split(" does nothing")[0] for warning in found] == [
        "processors.1 (temperature)",
        "processors.2 (top_k)",
    ]


def test_under_greedy_what_comes_before_another_processor_may_matter(warnings):
    assert not any("does nothing" in w for w in warnings([TEMPERATURE, PENALTY], sampler="greedy"))


def test_no_limit(warnings):
    [warning] = warnings([], stop_criteria=[{"type": "eos"}])
    assert "have no limit" in warning
    assert warnings([], stop_criteria=[{"type": "eos"}, {"type": "time_limit", "seconds": 1}]) == []


def test_no_end(warnings):
    [warning] = warnings([], stop_criteria=BOUNDED[1:])
    assert "have no eos" in warning
