"""Where two recipes part."""

from __future__ import annotations

from dataclasses import replace
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
from genkit.recipes.certain import num_decisive
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


# --- where the most probable token is taken anyway ---------------------------------------

GREEDY = {"sampler": {"type": "greedy"}}
TEMPERATURE = {"type": "temperature", "temperature": 0.5}
COLDEST = {"type": "temperature", "temperature": 0}
TOP_K = {"type": "top_k", "k": 5}
TOP_P = {"type": "top_p", "p": 0.9}
PENALTY = {"type": "repetition_penalty", "penalty": 1.1}
SUPPRESS = {"type": "suppress_tokens", "token_ids": [1, 2]}
XTC = {"type": "xtc", "probability": 0.5}


def greedy(*processors: Any) -> dict[str, Any]:
    return {**GREEDY, "processors": processors}


def drawn(*processors: Any) -> dict[str, Any]:
    return {"processors": processors}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (greedy(TOP_P), greedy({**TOP_P, "p": 0.8})),
        (greedy(TOP_P), greedy(TOP_K, TEMPERATURE)),
        (greedy(TEMPERATURE, TOP_P), greedy(TOP_P, TEMPERATURE)),
        (greedy(PENALTY, TOP_P), greedy(PENALTY)),
        (greedy(SUPPRESS), drawn(SUPPRESS, COLDEST)),
        (greedy(SUPPRESS), drawn(SUPPRESS, TOP_P, {**TOP_K, "k": 1}, PENALTY)),
        ({**drawn(COLDEST), "seed": 1}, {**drawn(COLDEST), "seed": 2}),
    ],
)
def test_the_most_probable_token_is_the_same(first: Any, second: Any) -> None:
    found = differences(first, second)
    assert found
    assert not any(each.matters for each in found)
    assert all("under greedy" in each.reason for each in found if each.path != "seed")


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        (greedy(PENALTY), greedy(), "processors.repetition_penalty"),
        (greedy(TOP_P, SUPPRESS), greedy(SUPPRESS), "processors.top_p"),
        (greedy(XTC), drawn(XTC), "sampler"),
        (greedy(), drawn(COLDEST, {"type": "forced_bos", "token_id": 1}), "sampler"),
        (greedy(), drawn({**TOP_K, "k": 1, "ties": "keep"}), "sampler"),
        (drawn({"type": "allowed_tokens", "token_ids": [1]}), greedy(), "sampler"),
        ({**greedy(XTC), "seed": 1}, {**greedy(XTC), "seed": 2}, "seed"),
        (drawn(TOP_P), drawn({**TOP_P, "p": 0.8}), "processors.top_p.p"),
    ],
)
def test_another_token_may_be_taken(first: Any, second: Any, path: str) -> None:
    assert path in {each.path for each in differences(first, second) if each.matters}


@pytest.mark.parametrize("sampler", ["greedy", "categorical"])
def test_what_is_said_to_decide_decides(sampler: str) -> None:
    """The token that is taken is the most probable one after so many processors."""
    recipe = KIT.recipe({**RECIPE, "sampler": {"type": sampler}})
    logits = LOGITS[:40]
    state: dict[str, Any] = {"prompts": ROWS[:40], "generated": [[1, 4, 4]] * 40, "eos": [7]}
    seen = set()
    for chain in product(PARTS, PARTS):
        count = num_decisive(replace(recipe, processors=chain))
        seen.add(count)
        if count is not None:
            whole = vectors.apply(chain, logits, **state)
            decided = vectors.apply(chain[:count], logits, **state)
            assert torch.equal(decided.argmax(-1), whole.argmax(-1)), chain
            assert sampler == "greedy" or ((whole > -torch.inf).sum(-1) == 1).all(), chain
    assert seen == ({0, 1, 2} if sampler == "greedy" else {0, 1, None})


# --- other ways to write the same --------------------------------------------------------


def test_temperatures_in_a_row_are_their_product() -> None:
    twice = [{**TEMPERATURE, "temperature": 0.1}, {**TEMPERATURE, "temperature": 0.7}, TOP_P]
    once = [{**TEMPERATURE, "temperature": 0.07}, TOP_P]  # 0.1 * 0.7 is a little more
    [found] = differences(drawn(*twice), drawn(*once))
    reason = "temperatures in a row multiply"
    assert found == ("processors.temperature", "0.1 * 0.7", "0.07", False, reason)
    assert differences(drawn(*twice), drawn(*twice)) == []

    later = {**TEMPERATURE, "temperature": 2}
    [found] = differences(drawn(*twice, later), drawn(*once, later))
    assert found[1:4] == ("0.1 * 0.7, 2", "0.07, 2", False)


def test_temperatures_that_are_not_in_a_row_or_have_another_product() -> None:
    apart = drawn(TEMPERATURE, TOP_P, TEMPERATURE)
    assert any(each.matters for each in differences(apart, drawn(TEMPERATURE, TEMPERATURE, TOP_P)))
    found = differences(drawn(TEMPERATURE, TEMPERATURE), drawn({**TEMPERATURE, "temperature": 0.3}))
    assert [each[1:4] for each in found] == [("0.5 * 0.5", "0.3", False), (0.25, 0.3, True)]


def test_parts_that_do_nothing_with_other_options() -> None:
    neutral = {"type": "xtc", "probability": 0.0}
    [found] = differences(drawn(neutral), drawn({**neutral, "threshold": 0.2}))
    assert (found.matters, found.reason) == (False, "its options are neutral: it does nothing")


LISTS = {
    "allowed_tokens.token_ids": [1, 2],
    "bad_words.strings": ["a", "b"],
    "bad_words.token_ids": [[1, 2], [3]],
    "begin_suppress_tokens.token_ids": [1, 2],
    "dry.breaker_ids": [[1, 2], [3]],
    "dry.breakers": ["a", "b"],
    "eos.token_ids": [1, 2],
    "forced_eos.token_ids": [1, 2],
    "length_decay.token_ids": [1, 2],
    "min_length.token_ids": [1, 2],
    "min_new_tokens.token_ids": [1, 2],
    "sequence_bias.sequences": [{"token_ids": [1, 2], "bias": 1}, {"token_ids": [3], "bias": 1}],
    "stop_strings.strings": ["a", "b"],
    "stop_token_ids.token_ids": [1, 2],
    "suppress_tokens.token_ids": [1, 2],
    "xtc.protected_ids": [1, 2],
}
ORDERED = {"stop_regex.patterns"}  # of two that begin at one place the first in the list counts
NEEDED = {
    "dry": {"multiplier": 1},
    "length_decay": {"start": 1, "factor": 2},
    "min_length": {"limit": 3},
    "min_new_tokens": {"limit": 3},
    "xtc": {"probability": 0.5},
}


def one_part(option: str, value: Any) -> dict[str, Any]:
    type_name, _, name = option.partition(".")
    part = {"type": type_name, **NEEDED.get(type_name, {}), name: value}
    if type_name in {"eos", "stop_regex", "stop_strings", "stop_token_ids"}:
        return {"stop_criteria": [part]}
    return {"processors": [part]}


@pytest.mark.parametrize("option", LISTS)
def test_the_order_of_a_list_that_is_a_set(option: str) -> None:
    value = LISTS[option]
    [found] = differences(one_part(option, value), one_part(option, value[::-1]))
    assert not found.matters
    assert found.reason == "the same ones, and their order means nothing"
    [found] = differences(one_part(option, value), one_part(option, value[:1]))
    assert found.matters


def test_the_order_inside_a_sequence_matters() -> None:
    words = [one_part("bad_words.token_ids", [word]) for word in ([1, 2], [2, 1])]
    [found] = differences(*words)
    assert found.matters


def test_the_order_of_patterns_matters() -> None:
    patterns = ["a(?=b)", "ab"]
    first, second = patterns, patterns[::-1]
    [found] = differences(
        one_part("stop_regex.patterns", first), one_part("stop_regex.patterns", second)
    )
    assert found.matters


def test_all_lists_are_thought_of() -> None:
    kinds = "logits_processor", "sampler", "stop_criterion"
    classes = [entry.part_class for kind in kinds for entry in KIT.parts(kind)]
    lists = {
        f"{each.type_name()}.{name}"
        for each in classes
        for name, field in each.model_fields.items()
        if "tuple[" in str(field.annotation)
    }
    assert lists == LISTS.keys() | ORDERED


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
