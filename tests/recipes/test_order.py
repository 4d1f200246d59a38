"""What `genkit recipes check` warns about."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from genkit.components.base import LogitsProcessor
from genkit.components.stopping import Repeating, StopRegex, StopStrings
from genkit.core.run import Run
from genkit.kit import Kit
from genkit.recipes.order import order_warnings
from genkit.testing import ending

BOUNDED = [{"type": "eos"}, {"type": "answer_limit", "limit": 5}]
TEMPERATURE = {"type": "temperature", "temperature": 0.8}
TOP_K = {"type": "top_k", "k": 5}
TOP_P = {"type": "top_p", "p": 0.9}
MIN_P = {"type": "min_p", "min_p": 0.1}
PENALTY = {"type": "repetition_penalty", "penalty": 1.1}
SUPPRESS = {"type": "suppress_tokens", "token_ids": [2]}
ALLOW = {"type": "allowed_tokens", "token_ids": [1, 2]}
FORCED = {"type": "forced_bos", "token_id": 2}
BEGIN = {"type": "begin_suppress_tokens", "token_ids": [2]}
PRESENCE = {"type": "presence_penalty", "penalty": 1.0}
DYNAMIC = {"type": "dynamic_temperature", "low": 0.5, "high": 2.0}
XTC = {"type": "xtc", "probability": 0.5}
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
    assert "what is cut off does not come back" in warning


@pytest.mark.parametrize(
    "second",
    [{"type": "token_bias", "biases": {1: 2.0}}, {"type": "sequence_bias", "sequences": [BIASED]}],
)
def test_a_bias_after_a_truncation_comes_too_late(warnings, second):
    [warning] = warnings([TOP_K, second])
    assert "what is cut off does not come back" in warning
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
    assert "processors.0 (min_p) comes before processors.1 (top_p): top_p takes its" in warning
    assert warnings([TOP_P, MIN_P]) == []


def test_a_temperature_of_0_takes_what_a_filter_has_kept_anyway(warnings):
    assert warnings([TOP_P, {"type": "temperature", "temperature": 0}]) == []


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (TOP_K, TOP_K, "are the same top_k: the second does nothing"),
        (TOP_P, TOP_P, "are the same top_p: the second takes its share"),
        (TEMPERATURE, TEMPERATURE, "are the same temperature: they multiply"),
        (PENALTY, PENALTY, "are the same repetition_penalty: they multiply, to 1.21"),
        (PENALTY, {**PENALTY, "penalty": 1.2}, "are both repetition_penalty: they multiply"),
        (PRESENCE, {**PRESENCE, "penalty": 0.5}, "are both presence_penalty: they add up, to 1.5"),
        (DYNAMIC, {**DYNAMIC, "high": 1.5}, "are both dynamic_temperature: the logits are divided"),
        (DYNAMIC, TEMPERATURE, "are both temperatures: the logits are divided by one and by"),
        (TEMPERATURE, DYNAMIC, "are both temperatures: the logits are divided by one and by"),
        (SUPPRESS, SUPPRESS, "are the same suppress_tokens: the second does nothing unless"),
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


def test_two_penalties_of_other_tokens_may_be_meant(warnings):
    assert warnings([{**PENALTY, "scope": "prompt"}, {**PENALTY, "scope": "output"}]) == []
    assert warnings([PENALTY, {**PENALTY, "penalty": 1.2, "window": 64}]) == []


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


@pytest.mark.parametrize(
    "one",
    [
        {"type": "top_k", "k": 1},
        {**TEMPERATURE, "temperature": 0},
        {**TEMPERATURE, "temperature": 1e-31},  # counts as 0
    ],
)
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
        ([{**FORCED, "token_id": 5}, ALLOW], "forces token 5, and processors.1"),
        ([{**FORCED, "token_id": 5}, ALLOW], "does not allow it: where it is forced nothing is"),
        ([{"type": "forced_eos", "token_ids": [2, 3]}, SUPPRESS], "forbids it: it never comes"),
        ([ALLOW, {**ALLOW, "token_ids": [3, 4]}], "no token is in both: nothing is left"),
        ([FORCED, BEGIN], "where it is forced nothing is left"),
        ([BEGIN, FORCED], "where it is forced it comes all the same"),
        ([BEGIN, {"type": "token_bias", "biases": {2: 1.0}}], "forbidden the bias does nothing"),
        ([{"type": "token_bias", "biases": {2: 1.0}}, BEGIN], "forbidden the bias does nothing"),
        ([ALLOW, {**BEGIN, "token_ids": [1, 2]}], "where it is forbidden nothing is left"),
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
    assert warnings([ALLOW, {**ALLOW, "token_ids": [2, 3]}]) == []
    assert warnings([ALLOW, BEGIN]) == []
    assert warnings([FORCED, {**BEGIN, "begin_index": 1}]) == []
    assert warnings([BEGIN, {"type": "token_bias", "biases": {3: 1.0}}]) == []
    assert warnings([{"type": "forced_eos", "token_ids": [2]}, BEGIN]) == []


ENDS = {"type": "eos", "token_ids": [2, 3]}


@pytest.mark.parametrize(
    ("processor", "words"),
    [
        (SUPPRESS, "at token 2, and processors.0 (suppress_tokens) forbids it: it never comes"),
        (ALLOW, "at token 3, and processors.0 (allowed_tokens) does not allow it"),
        ({"type": "bad_words", "token_ids": [[3]]}, "processors.0 (bad_words) forbids it"),
        ({"type": "token_bias", "biases": {2: "-inf"}}, "processors.0 (token_bias) forbids it"),
    ],
    ids=lambda value: None if isinstance(value, str) else value["type"],
)
def test_an_end_token_that_never_comes(warnings, processor, words):
    for criterion in (ENDS, {**ENDS, "type": "stop_token_ids"}):
        [warning] = warnings([processor], stop_criteria=[criterion, BOUNDED[1]])
        assert f"stop_criteria.0 ({criterion['type']}) ends an answer" in warning
        assert words in warning
    # The model's own end tokens are not known, and a token that is forced comes all the same.
    assert warnings([processor]) == []
    forced = warnings([processor, {"type": "forced_eos"}], stop_criteria=[ENDS, BOUNDED[1]])
    assert forced == []


@pytest.mark.parametrize(
    "processor",
    [BEGIN, {"type": "bad_words", "token_ids": [[2]], "spare_end_tokens": True}],
    ids=lambda value: value["type"],
)
def test_an_end_token_that_may_come(warnings, processor):
    assert warnings([processor], stop_criteria=[ENDS, BOUNDED[1]]) == []


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
def test_a_least_length_that_the_greatest_leaves_no_room_after(warnings, least, most):
    stop_criteria = [{"type": "eos"}, {"type": most, "limit": 5}]
    for limit in (5, 6):
        [warning] = warnings([{"type": least, "limit": limit}], stop_criteria=stop_criteria)
        assert f"forbids the end until {limit} tokens" in warning
    assert warnings([{"type": least, "limit": 4}], stop_criteria=stop_criteria) == []
    others = [{"type": "eos", "token_ids": [3]}, stop_criteria[1]]
    assert warnings([{"type": least, "limit": 6}], stop_criteria=others) == []
    forced = [{"type": least, "limit": 6}, {"type": "forced_eos"}]
    assert warnings(forced, stop_criteria=stop_criteria) == []
    both = warnings([{"type": least, "limit": 6, "token_ids": [3]}], stop_criteria=others)
    assert "no answer ends" in both[0]
    endless = warnings([{"type": least, "limit": 6}], stop_criteria=stop_criteria[1:])
    assert not any("no answer ends" in warning for warning in endless)


def test_greedy_makes_what_keeps_the_most_probable_token_idle(warnings):
    found = warnings([PENALTY, TEMPERATURE, TOP_K], sampler="greedy")
    assert [warning.split(" does nothing")[0] for warning in found] == [
        "processors.1 (temperature)",
        "processors.2 (top_k)",
    ]


def test_under_greedy_what_does_nothing_anyway_is_no_obstacle(warnings):
    found = warnings([TEMPERATURE, {**PENALTY, "penalty": 1}], sampler="greedy")
    assert [warning.partition(" does")[0] for warning in found] == [
        "processors.1 (repetition_penalty)",
        "processors.0 (temperature)",
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
        ([TOP_P, TOP_K], "SGLang and mlx-lm have this order"),
        ([PRESENCE, PENALTY], "goes by the sign of the logits; SGLang has this order"),
        ([XTC, MIN_P], "by which the other goes; engines that have both have xtc after it"),
        ([XTC, TOP_P], "by which the other goes; engines that have both have xtc after it"),
        ([XTC, TEMPERATURE], "depends on the temperature before it; this order is as in llama.cpp"),
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
        [{"type": "no_repeat_ngram", "n": 3}, {"type": "token_bias", "biases": {5: 3.0}}],
        [{"type": "min_new_tokens", "limit": 3}, {"type": "sequence_bias", "sequences": [BIASED]}],
        [TEMPERATURE, MIN_P, XTC],
        [XTC, TOP_K],  # as mlx-lm has it
        [XTC, {"type": "temperature", "temperature": 0}],
        [{"type": "top_k", "k": 1, "ties": "keep"}, {"type": "renormalize"}],  # equal ones stay
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
    for limit in (4, 9):  # the prompt has a token at least
        found = warnings([{"type": "min_new_tokens", "limit": limit}], stop_criteria=ends)
        assert "no answer ends at an end token" in reasons(found)
    assert warnings([{"type": "min_new_tokens", "limit": 3}], stop_criteria=ends) == []


def test_a_string_that_counts_after_the_end(warnings):
    late = {"type": "stop_strings", "strings": ["x"], "min_new_tokens": 9}
    ends = [{"type": "eos"}, late, {"type": "max_new_tokens", "limit": 5}]
    assert "it counts after 9 tokens" in reasons(warnings([], stop_criteria=ends))
    ends[-1] = {"type": "max_new_tokens", "limit": 10}
    assert warnings([], stop_criteria=ends) == []


LENGTH = {"type": "max_new_tokens", "limit": 9}


def strings(*given, **options):
    return {"type": "stop_strings", "strings": given, **options}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"type": "eos"}, {"type": "eos"}),
        (ENDS, {"type": "eos", "token_ids": [3]}),
        (ENDS, {"type": "stop_token_ids", "token_ids": [3, 2]}),
        (LENGTH, LENGTH),
        (strings("a"), strings("a")),
        (strings("a", "b"), strings("xa", "by")),
        (strings("a"), strings("xa", min_new_tokens=3)),
        (
            {"type": "stop_regex", "patterns": ["a", "b+"]},
            {"type": "stop_regex", "patterns": ["b+"], "min_new_tokens": 2},
        ),
        ({"type": "time_limit", "seconds": 1}, {"type": "time_limit", "seconds": 2}),
        (
            {"type": "repeating", "max_period": 3, "times": 2},
            {"type": "repeating", "max_period": 2, "times": 3, "min_period": 2},
        ),
        (
            {"type": "low_confidence", "threshold": 0.5},
            {"type": "low_confidence", "threshold": 0.4, "patience": 2},
        ),
    ],
    ids=lambda value: value["type"],
)
def test_a_stop_criterion_that_can_never_matter(warnings, kit, first, second):
    others = [each for each in ({"type": "eos"}, LENGTH) if each["type"] != first["type"]]
    found = warnings([], stop_criteria=[first, second, *others])
    words = "stop_criteria.1 ({}) does nothing: stop_criteria.0 ({}) ends all answers that it would"
    assert [words.format(second["type"], first["type"]) in warning for warning in found] == [True]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"type": "eos", "token_ids": [3]}, {"type": "eos", "token_ids": [2, 3]}),
        ({"type": "eos"}, {"type": "stop_token_ids", "token_ids": [3]}),
        (strings("xa"), strings("a")),
        (strings("a", "b"), strings("xa", "c")),
        (strings("a", min_new_tokens=3), strings("a")),
        (strings("a", min_new_tokens=3), strings("ax", min_new_tokens=3)),
        ({"type": "stop_regex", "patterns": ["a"]}, {"type": "stop_regex", "patterns": ["ab"]}),
        (
            {"type": "repeating", "max_period": 3, "times": 3},
            {"type": "repeating", "max_period": 3, "times": 2},
        ),
        (
            {"type": "low_confidence", "threshold": 0.4},
            {"type": "low_confidence", "threshold": 0.5, "patience": 2},
        ),
    ],
    ids=lambda value: value["type"],
)
def test_two_stop_criteria_that_both_matter(warnings, first, second):
    others = [each for each in ({"type": "eos"}, LENGTH) if each["type"] != first["type"]]
    assert warnings([], stop_criteria=[first, second, *others]) == []


def test_the_longer_of_two_times_does_nothing_where_it_is_first_too(warnings):
    times = [{"type": "time_limit", "seconds": seconds} for seconds in (2, 1)]
    [warning] = warnings([], stop_criteria=[{"type": "eos"}, *times])
    assert "stop_criteria.1 (time_limit) does nothing: stop_criteria.2 (time_limit)" in warning


def test_the_models_own_end_tokens_beside_others(warnings):
    [warning] = warnings([], stop_criteria=[{"type": "eos"}, ENDS, LENGTH])
    assert "token_ids do not stand in their place" in warning


def test_a_stop_string_that_holds_another(warnings):
    ends = [{"type": "eos"}, strings("\n", "\n\n", "x\n"), LENGTH]
    [warning] = warnings([], stop_criteria=ends)
    assert warning == (
        r"stop_criteria.1 (stop_strings) never gets as far as '\n\n': '\n' ends the answer before."
    )
    ends[1] = strings("\n", "\n\n", min_new_tokens=2)
    assert warnings([], stop_criteria=ends) == []


# --- what is said of stop criteria holds -------------------------------------------------

TEXTS = ["".join(letters) for size in range(1, 5) for letters in product("abc", repeat=size)]
CRITERIA = [
    *(
        StopStrings(strings=given, min_new_tokens=least)
        for given in (["a"], ["ab"], ["ba"], ["b", "ca"], ["bab", "a"])
        for least in (0, 2)
    ),
    *(
        StopRegex(patterns=given, min_new_tokens=least)
        for given in (["a+b"], ["a+b", "c"])
        for least in (0, 2)
    ),
    *(
        Repeating(max_period=period, times=times, min_period=least)
        for period, times, least in [(1, 2, 1), (2, 2, 1), (2, 2, 2), (2, 3, 1)]
    ),
]


def test_what_is_said_to_do_nothing_does_nothing(kit):
    ends = {criterion: [ending(criterion, text) for text in TEXTS] for criterion in CRITERIA}
    recipe = kit.recipe({"version": 1, "backend": {"type": "fake", "model": "m"}})
    said = 0
    for first, second in product(CRITERIA, CRITERIA):
        found = order_warnings(replace(recipe, stop_criteria=(first, second)))
        if any("stop_criteria.1" in each and "does nothing" in each for each in found):
            said += 1
            for one, other in zip(ends[first], ends[second], strict=True):
                assert other is None or (one is not None and one <= other), (first, second)
    assert said > len(CRITERIA) + 10


ROOT = Path(__file__).parents[2]
RECIPES = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("plugins/*/src/**/*.yaml")]
# Pages that show what is warned of, or the order of an engine in which the temperature comes last.
ON_PURPOSE = {ROOT / "docs" / "recipes.md", ROOT / "docs" / "coming-from" / "llama-cpp.md"}
PAGES = [ROOT / "README.md", *{*ROOT.glob("docs/**/*.md")} - ON_PURPOSE]
SHOWN = re.compile(r"```yaml title=[^\n]*\n(version: .*?)```", re.DOTALL)


def test_the_recipes_of_this_repository_warn_of_nothing_but_missing_ends():
    kit = Kit.from_file(ROOT / "examples" / "spelling.py")
    recipes = [path.read_text() for path in RECIPES]
    recipes += (text for page in PAGES for text in SHOWN.findall(page.read_text()))
    assert len(recipes) > 4
    for text in recipes:
        # Where a page has a backend of its own, any other will do.
        document = {**yaml.safe_load(text), "backend": {"type": "pytorch", "model": "m"}}
        found = order_warnings(kit.recipe(document))
        missing = "stop_criteria have no "  # limit, or end token: what is shown is the rest
        assert [warning for warning in found if not warning.startswith(missing)] == [], text
