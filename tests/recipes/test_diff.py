"""Where two recipes part."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

import vectors
from genkit.components.processors import (
    AllowedTokens,
    BadWords,
    DynamicTemperature,
    ForcedBos,
    FrequencyPenalty,
    MinNewTokens,
    MinP,
    PresencePenalty,
    PromptRepetitionPenalty,
    Renormalize,
    RepetitionPenalty,
    SuppressTokens,
    Temperature,
    TokenBias,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from genkit.kit import Kit
from genkit.recipes.commuting import exchange
from genkit.recipes.diff import Difference, diff

KIT = Kit(entry_points=False)

RECIPE: dict[str, Any] = {
    "version": 1,
    "backend": {"type": "pytorch", "model": "m"},
    "processors": [{"type": "temperature", "temperature": 0.8}, {"type": "top_p", "p": 0.9}],
    "sampler": {"type": "categorical"},
    "stop_criteria": [{"type": "eos"}, {"type": "max_new_tokens", "limit": 8}],
}


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[Difference]:
    return diff(KIT.recipe({**RECIPE, **first}), KIT.recipe({**RECIPE, **second}))


def test_the_same_recipe() -> None:
    assert differences({}, {}) == []
    assert differences({}, {"cache": {"type": "dynamic"}, "seed": None}) == []


def test_an_option_that_differs_says_what_it_does() -> None:
    first = {"processors": [{"type": "top_k", "k": 5}]}
    second = {"processors": [{"type": "top_k", "k": 5, "ties": "keep"}]}
    [found] = differences(first, second)
    assert found[:4] == ("processors.top_k.ties", "by_id", "keep", True)
    assert found.reason.startswith("of tokens that equal the k-th, those with lower ids stay")


def test_a_part_that_only_one_has() -> None:
    [found] = differences({"processors": RECIPE["processors"][:1]}, {})
    assert found[:4] == ("processors.top_p", None, {"type": "top_p", "p": 0.9}, True)
    assert found.reason.startswith("keeps the most probable tokens")


def test_a_part_that_does_nothing() -> None:
    neutral = {"type": "top_k", "k": 5}, {"type": "min_p", "min_p": 0}
    [found] = differences({"processors": neutral}, {"processors": neutral[:1]})
    assert found.path == "processors.min_p"
    assert not found.matters
    [moved] = differences({"processors": neutral}, {"processors": neutral[::-1]})
    assert (moved.matters, moved.reason) == (False, "one of them does nothing")


def test_the_second_part_of_a_type() -> None:
    twice = {"processors": [{"type": "top_p", "p": 0.9}, {"type": "top_p", "p": 0.8}]}
    once = {"processors": twice["processors"][:1]}
    [found] = differences(twice, once)
    assert found.path == "processors.top_p#2"


def test_an_order_that_matters() -> None:
    [found] = differences({}, {"processors": RECIPE["processors"][::-1]})
    assert found[:4] == ("processors", "temperature, top_p", "top_p, temperature", True)
    assert "depends on the temperature" in found.reason


@pytest.mark.parametrize(
    "part", [{"type": "top_k", "k": 5}, {"type": "repetition_penalty", "penalty": 1.1}]
)
def test_an_order_that_does_not(part: dict[str, Any]) -> None:
    parts = [part, {"type": "temperature", "temperature": 0.5}]
    [found] = differences({"processors": parts}, {"processors": parts[::-1]})
    assert not found.matters


def test_stop_criteria_in_another_order() -> None:
    [found] = differences({}, {"stop_criteria": RECIPE["stop_criteria"][::-1]})
    assert not found.matters
    assert "the first is named" in found.reason


def test_other_parts_in_one_place() -> None:
    [found] = differences({}, {"sampler": {"type": "mirostat", "tau": 3}})
    assert found[:4] == ("sampler", {"type": "categorical"}, {"type": "mirostat", "tau": 3.0}, True)
    assert "draws a token with its probability against" in found.reason


def test_caches_and_devices() -> None:
    [found] = differences({}, {"cache": {"type": "none"}})
    assert not found.matters
    [found] = differences({}, {"cache": {"type": "sink_window", "window": 64}})
    assert found.matters
    backend = {**RECIPE["backend"], "device": "cpu"}
    [found] = differences({}, {"backend": backend})
    assert (found.path, found.matters) == ("backend.device", False)
    [found] = differences({}, {"backend": {**backend, "device": "auto", "dtype": "float64"}})
    assert found.matters


def test_seeds() -> None:
    [found] = differences({}, {"seed": 7})
    assert found[:4] == ("seed", None, 7, True)
    greedy = {"sampler": {"type": "greedy"}}
    [found] = differences(greedy, {**greedy, "seed": 7})
    assert not found.matters


# --- what is said about orders holds -----------------------------------------------------

PARTS = [
    AllowedTokens(token_ids=[0, 1, 2, 3, 4, 5, 6]),
    BadWords(token_ids=[[0], [2, 1]]),
    MinNewTokens(limit=9),
    SuppressTokens(token_ids=[3]),
    TokenBias(biases={1: 2.0, 4: -1.5}),
    FrequencyPenalty(penalty=0.5),
    PresencePenalty(penalty=0.7),
    RepetitionPenalty(penalty=1.5),
    RepetitionPenalty(penalty=1.5, base="logprobs"),
    PromptRepetitionPenalty(penalty=1.5),
    Temperature(temperature=0.5),
    Temperature(temperature=1.7),
    Temperature(temperature=0),
    DynamicTemperature(low=0.5, high=2.0),
    TopK(k=4),
    TopK(k=4, ties="keep"),
    TopK(k=3),
    TopNSigma(n=0.8),
    MinP(min_p=0.2),
    MinP(min_p=0.3),
    MinP(min_p=0.2, min_keep=3),
    TopP(p=0.7),
    TypicalP(p=0.7),
    Xtc(probability=1.0, threshold=0.1),
    ForcedBos(token_id=1, place="second_of_text"),
    Renormalize(),
]
LOGITS = torch.randn((400, 12), generator=torch.Generator().manual_seed(0)) * 1.5
ROWS = [[2, 1, 5, 2]] * 400


def applied(first: Any, second: Any) -> torch.Tensor:
    return vectors.apply(
        [first, second], LOGITS, prompts=ROWS, generated=[[1, 4, 4]] * 400, eos=[7]
    )


def test_what_is_said_not_to_matter_does_not() -> None:
    said = 0
    for first, second in product(PARTS, PARTS):
        if not exchange(first, second).matters:
            said += 1
            forth, back = applied(first, second), applied(second, first)
            close = torch.isclose(forth, back, rtol=1e-5, atol=1e-6)
            assert close.all(), (first, second)
        assert exchange(first, second) == exchange(second, first)
    assert said > 100


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Temperature(temperature=0.5), TopP(p=0.7)),
        (Temperature(temperature=0.5), MinP(min_p=0.2)),
        (Temperature(temperature=0.5), TokenBias(biases={1: 2.0})),
        (TopK(k=4), TopP(p=0.7)),
        (MinP(min_p=0.2), TopP(p=0.7)),
        (TokenBias(biases={1: 2.0}), RepetitionPenalty(penalty=1.5)),
        (SuppressTokens(token_ids=[3]), TopK(k=4)),
        (RepetitionPenalty(penalty=1.5), TopK(k=4)),
        (TopNSigma(n=0.8), TopK(k=4)),
    ],
)
def test_what_is_said_to_matter_does(first: Any, second: Any) -> None:
    assert exchange(first, second).matters
    assert not torch.equal(applied(first, second).isinf(), applied(second, first).isinf()) or (
        not torch.isclose(applied(first, second), applied(second, first)).all()
    )
