"""What `genkit recipes check` warns about."""

import pytest

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.recipes.order import order_warnings

BOUNDED = [{"type": "eos"}, {"type": "answer_limit", "limit": 5}]
TEMPERATURE = {"type": "temperature", "temperature": 0.8}
TOP_K = {"type": "top_k", "k": 5}
TOP_P = {"type": "top_p", "p": 0.9}
MIN_P = {"type": "min_p", "min_p": 0.1}
PENALTY = {"type": "repetition_penalty", "penalty": 1.1}
SUPPRESS = {"type": "suppress_tokens", "token_ids": [2]}
ALLOW = {"type": "allowed_tokens", "token_ids": [1, 2]}
FORCED = {"type": "forced_bos", "token_id": 2}
BIASED = {"token_ids": [1], "bias": 2.0}


@pytest.fixture
def warnings(kit):
    def warnings(processors, sampler="categorical", stop_criteria=BOUNDED):
        recipe = {
            "version": 1,
            "backend": {"type": "fake", "model": "m"},
            "processors": processors,
            "sampler": {"type": sampler} if isinstance(sampler, str) else sampler,
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


@pytest.mark.parametrize(
    "second",
    [{"type": "token_bias", "biases": {1: 2.0}}, {"type": "sequence_bias", "sequences": [BIASED]}],
)
def test_a_bias_after_a_truncation_comes_too_late(warnings, second):
    [warning] = warnings([TOP_K, second])
    assert "the bias cannot bring back" in warning
    assert warnings([second, TOP_K]) == []


def test_a_watermark_after_a_truncation_is_weaker(warnings):
    mark = {"type": "watermark", "scheme": {"type": "green_list"}}
    [warning] = warnings([TOP_P, mark])
    assert "only choose among the tokens that are left" in warning


def test_a_mask_after_a_truncation_may_forbid_all(warnings):
    [warning] = warnings([TOP_K, SUPPRESS])
    assert "may forbid all tokens" in warning
    assert warnings([SUPPRESS, TOP_K]) == []


def test_min_p_before_top_p(warnings):
    [warning] = warnings([MIN_P, TOP_P])
    assert "processors.0 (min_p) comes before processors.1 (top_p): the mass is counted" in warning
    assert warnings([TOP_P, MIN_P]) == []


def test_a_temperature_of_0_takes_what_a_filter_has_kept_anyway(warnings):
    assert warnings([TOP_P, {"type": "temperature", "temperature": 0}]) == []


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (TOP_K, TOP_K, "are the same top_k: the second does nothing"),
        (TOP_P, TOP_P, "are the same top_p: the second takes its share"),
        (TEMPERATURE, TEMPERATURE, "are the same temperature: they multiply"),
        (PENALTY, PENALTY, "are the same repetition_penalty: both are applied"),
        (TOP_P, {**TOP_P, "p": 0.8}, "are both top_p: the second takes its share"),
        (TEMPERATURE, {**TEMPERATURE, "temperature": 0.5}, "they multiply, to 0.4"),
        (TOP_K, {**TOP_K, "k": 9}, "processors.1 (top_k) does nothing: processors.0 has left 5"),
        ({**TOP_K, "k": 9}, TOP_K, "processors.0 (top_k) does nothing: processors.1 leaves 5"),
        (MIN_P, {**MIN_P, "min_p": 0.2}, "processors.0 (min_p) does nothing"),
        ({**MIN_P, "min_p": 0.2}, MIN_P, "processors.1 (min_p) does nothing"),
    ],
)
def test_the_same_type_twice(warnings, first, second, reason):
    [warning] = warnings([first, second])
    assert reason in warning


def test_two_top_k_that_both_do_something(warnings):
    kept = {"type": "top_k", "k": 5, "ties": "keep"}
    assert warnings([kept, {"type": "top_k", "k": 6}]) == []
    assert warnings([{"type": "top_k", "k": 9}, TEMPERATURE, TOP_K]) == []


NEUTRAL_PARTS = [
    {"type": "bad_words"},
    {"type": "begin_suppress_tokens", "token_ids": []},
    {"type": "dry", "multiplier": 0, "breakers": []},
    {"type": "dynamic_temperature", "low": 1, "high": 1},
    {"type": "epsilon", "epsilon": 0},
    {"type": "eta", "epsilon": 0},
    {"type": "frequency_penalty", "penalty": 0},
    {"type": "length_decay", "start": 1, "factor": 1},
    {"type": "min_length", "limit": 0},
    {"type": "min_new_tokens", "limit": 0},
    {"type": "min_p", "min_p": 0},
    {"type": "presence_penalty", "penalty": 0},
    {"type": "prompt_repetition_penalty", "penalty": 1},
    {"type": "repetition_penalty", "penalty": 1},
    {"type": "repetition_penalty", "penalty": 2, "window": 0},
    {"type": "sequence_bias", "sequences": []},
    {"type": "smoothing", "factor": 0},
    {"type": "suppress_tokens", "token_ids": []},
    {"type": "tail_free", "z": 1},
    {"type": "temperature", "temperature": 1},
    {"type": "token_bias", "biases": {}},
    {"type": "top_a", "a": 0},
    {"type": "top_p", "p": 1},
    {"type": "typical_p", "p": 1},
    {"type": "xtc", "probability": 0},
    {"type": "xtc", "probability": 1, "threshold": 0.6},
]


@pytest.mark.parametrize("part", NEUTRAL_PARTS, ids=lambda part: part["type"])
def test_neutral_parts_do_nothing(warnings, kit, part):
    [warning] = warnings([part])
    assert warning == f"processors.0 ({part['type']}) does nothing: its options are neutral."
    # It is what the part itself says: there is nothing to bind.
    options = {name: value for name, value in part.items() if name != "type"}
    spec = kit.registry.part_class("logits_processor", part["type"])(**options)
    run = Run(((0,),), (0,), (0,), (9,), (0,), vocab_size=16, eos_token_ids=frozenset({1}))
    assert spec.bind(run) is None


def test_all_types_that_can_be_neutral_are_tried(kit):
    classes = [entry.part_class for entry in kit.parts("logits_processor")]
    neutral = {c.type_name() for c in classes if c.is_neutral is not LogitsProcessor.is_neutral}
    assert {part["type"] for part in NEUTRAL_PARTS} == neutral


@pytest.mark.parametrize("one", [{"type": "top_k", "k": 1}, {**TEMPERATURE, "temperature": 0}])
def test_nothing_matters_once_a_single_token_is_left(warnings, one):
    found = warnings([PENALTY, one, {"type": "renormalize"}, SUPPRESS, FORCED, SUPPRESS])
    idle = [warning for warning in found if "leaves a single token" in warning]
    assert [warning.partition(")")[0] for warning in idle] == [
        "processors.2 (renormalize",
        "processors.3 (suppress_tokens",
    ]
    assert "changes nothing any more" in idle[0]
    assert "can only forbid it" in idle[1]


@pytest.mark.parametrize(
    ("processors", "reason"),
    [
        ([ALLOW, {**SUPPRESS, "token_ids": [1, 2]}], "allows token 1, and processors.1"),
        ([ALLOW, {**SUPPRESS, "token_ids": [1, 2]}], "nothing is left, which ends the run"),
        ([SUPPRESS, ALLOW], "processors.1 (allowed_tokens) allows token 2"),
        ([SUPPRESS, ALLOW], "it never comes"),
        ([FORCED, SUPPRESS], "where it is forced nothing is left"),
        ([SUPPRESS, FORCED], "where it is forced it comes all the same"),
        ([FORCED, {"type": "bad_words", "token_ids": [[2], [3, 4]]}], "nothing is left"),
        ([FORCED, {"type": "token_bias", "biases": {2: "-inf"}}], "nothing is left"),
        ([{"type": "forced_eos", "token_ids": [2]}, SUPPRESS], "nothing is left"),
        ([{"type": "token_bias", "biases": {2: 1.0}}, SUPPRESS], "favours token 2"),
        ([{**FORCED, "token_id": 5}, ALLOW], "forces token 5, which processors.1"),
    ],
)
def test_tokens_that_one_wants_and_another_forbids(warnings, processors, reason):
    found = warnings(processors)
    assert len(found) == 1
    assert reason in found[0]


def test_tokens_that_nobody_disputes(warnings):
    assert warnings([{**SUPPRESS, "token_ids": [7]}, FORCED, {"type": "forced_eos"}]) == []
    assert warnings([{"type": "token_bias", "biases": {2: -1.0}}, SUPPRESS]) == []
    assert warnings([FORCED, ALLOW]) == []
    assert warnings([ALLOW, {**FORCED, "token_id": 5}]) == []


def test_mirostat_needs_all_tokens(warnings):
    [warning] = warnings([TEMPERATURE, TOP_K], sampler="mirostat")
    assert "processors.1 (top_k) comes before mirostat" in warning
    assert warnings([PENALTY, TEMPERATURE], sampler="mirostat") == []


def test_adaptive_p_needs_all_but_the_tail(warnings):
    adaptive = {"type": "adaptive_p", "target": 0.5}
    [warning] = warnings([MIN_P, TOP_K], sampler=adaptive)
    assert "processors.1 (top_k) comes before adaptive_p" in warning


@pytest.mark.parametrize(
    ("least", "most"), [("min_new_tokens", "max_new_tokens"), ("min_length", "max_length")]
)
def test_a_least_length_above_the_greatest(warnings, least, most):
    stop_criteria = [{"type": "eos"}, {"type": most, "limit": 5}]
    [warning] = warnings([{"type": least, "limit": 6}], stop_criteria=stop_criteria)
    assert "forbids the end until 6 tokens" in warning
    assert warnings([{"type": least, "limit": 5}], stop_criteria=stop_criteria) == []
    endless = warnings([{"type": least, "limit": 6}], stop_criteria=stop_criteria[1:])
    assert not any("no answer ends" in warning for warning in endless)


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


def reasons(found):
    return " ".join(found)


@pytest.mark.parametrize(
    ("processors", "words"),
    [
        (
            [{"type": "no_repeat_ngram", "n": 3}, {"type": "token_bias", "biases": {5: 3.0}}],
            "the bias cannot bring back a token that is forbidden already",
        ),
        (
            [
                {"type": "min_new_tokens", "limit": 3},
                {"type": "sequence_bias", "sequences": [BIASED]},
            ],
            "the bias cannot bring back a token that is forbidden already",
        ),
        (
            [ALLOW, {"type": "token_bias", "biases": {5: 3.0}}],
            "favours token 5, and processors.0 (allowed_tokens) does not allow it",
        ),
        (
            [{"type": "token_bias", "biases": {5: 3.0}}, ALLOW],
            "favours token 5, and processors.1 (allowed_tokens) does not allow it",
        ),
        (
            [
                {"type": "suppress_tokens", "token_ids": [1]},
                {"type": "sequence_bias", "sequences": [BIASED]},
            ],
            "favours token 1, and processors.0 (suppress_tokens) forbids it",
        ),
        ([{"type": "top_p", "p": 0}, MIN_P], "leaves a single token"),
        ([{"type": "allowed_tokens", "token_ids": [1]}, TOP_P], "leaves a single token"),
        ([TOP_P, TOP_K], "the mass is counted among all tokens"),
        ([{"type": "presence_penalty", "penalty": 1}, PENALTY], "then multiplied"),
        ([{"type": "renormalize"}, PENALTY], "all negative"),
        (
            [SUPPRESS, {"type": "remove_invalid", "minus_infinity": "lowest"}],
            "it gives forbidden tokens a number again",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else "+".join(p["type"] for p in value),
)
def test_neighbours_that_engines_order_otherwise(warnings, processors, words):
    assert words in reasons(warnings(processors))


@pytest.mark.parametrize(
    "processors",
    [
        [{"type": "no_repeat_ngram", "n": 3}, {"type": "token_bias", "biases": {5: -3.0}}],
        [ALLOW, {"type": "token_bias", "biases": {1: 3.0}}],
        [PENALTY, {"type": "presence_penalty", "penalty": 1}],
        [TOP_K, TOP_P],
        [{"type": "remove_invalid", "minus_infinity": "lowest"}, SUPPRESS],
    ],
    ids=lambda value: "+".join(p["type"] for p in value),
)
def test_neighbours_that_are_as_they_should_be(warnings, processors):
    assert warnings(processors) == []


@pytest.mark.parametrize("sampler", ["mirostat", {"type": "adaptive_p", "target": 0.5}])
def test_a_sampler_that_aims_has_nothing_to_choose_from(warnings, sampler):
    found = warnings([{"type": "temperature", "temperature": 0}], sampler=sampler)
    assert "has nothing to choose from" in reasons(found)


def test_a_least_length_beyond_the_whole_one(warnings):
    ends = [{"type": "eos"}, {"type": "max_length", "limit": 5}]
    found = warnings([{"type": "min_new_tokens", "limit": 9}], stop_criteria=ends)
    assert "no answer ends by itself" in reasons(found)


def test_a_string_that_counts_after_the_end(warnings):
    late = {"type": "stop_strings", "strings": ["x"], "min_new_tokens": 9}
    ends = [{"type": "eos"}, late, {"type": "max_new_tokens", "limit": 5}]
    assert "it counts after 9 tokens" in reasons(warnings([], stop_criteria=ends))
    ends[-1] = {"type": "max_new_tokens", "limit": 10}
    assert warnings([], stop_criteria=ends) == []
