"""Answers keep their form, whatever the model wants, and end."""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from genkit import Pipeline, samplers, stopping
from genkit.components.base import Sampler, StopCriterion
from genkit.errors import EmptyRowError, OptionError, PartError
from genkit.testing import ByteTokenizer, ScriptedModel, process
from genkit_structured.structured import Structured
from genkit_structured.structured_end import StructuredEnd

Wanting = Callable[..., ScriptedModel]

BYTES = ByteTokenizer()
EOS = BYTES.eos_token_id
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def pipeline(model: ScriptedModel, sampler: Sampler | None = None, **form: Any) -> Pipeline:
    """Ends with the end token."""
    return Pipeline(model, processors=[Structured(**form)], sampler=sampler)


def ended_by_the_grammar(model: ScriptedModel, **form: Any) -> Pipeline:
    """Ends with the token that completes the answer."""
    parts = [Structured(**form)]
    return Pipeline(model, processors=parts, stop_criteria=[StructuredEnd(**form)])


def allowed(part: Structured, text: bytes = b"", width: int = 260, **facts: Any) -> set[int]:
    """The tokens that may follow a text."""
    facts = {"tokenizer": BYTES, "eos": [EOS], "generated": [*text], **facts}
    return {i for i, x in enumerate(process(part, [0.0] * width, **facts)) if x > -math.inf}


# What is allowed.


def test_of_each_form_only_what_goes_on_with_it_is_allowed() -> None:
    assert allowed(Structured(choices=["yes", "yet", "no"])) == {*b"yn"}
    assert allowed(Structured(choices=["yes", "yet", "no"]), b"ye") == {*b"st"}
    assert allowed(Structured(regex="a[bc]?"), b"") == {*b"a"}
    assert allowed(Structured(lark='start: "a" | "b" start'), b"b") == {*b"ab"}
    assert allowed(Structured(json_schema=SCHEMA), b'{"a"') == {*b" \n\r\t:"}


def test_an_end_token_is_allowed_exactly_where_the_grammar_accepts() -> None:
    part = Structured(regex="ab?c?")
    assert EOS not in allowed(part)
    assert allowed(part, b"a") == {*b"bc", EOS}
    assert allowed(part, b"abc") == {EOS}


def test_after_an_end_token_nothing_else_is_allowed() -> None:
    ends = [EOS, BYTES.turn_end_id]
    assert allowed(Structured(regex="a+"), generated=[97, EOS], eos=ends) == {*ends}


def test_a_choice_that_begins_another_may_end_or_go_on() -> None:
    assert allowed(Structured(choices=["a", "ab", "abc"]), b"ab") == {*b"c", EOS}


def test_nothing_follows_a_token_that_does_not_fit() -> None:
    assert allowed(Structured(regex="a+"), b"ax") == set()
    assert allowed(Structured(regex="a+"), generated=[97, 300], width=301) == set()


def test_special_tokens_are_no_text() -> None:
    assert allowed(Structured(regex="(?s:.)*")) == {*range(128), *range(0xC2, 0xF5), EOS}


def test_logits_wider_than_the_tokenizer_are_forbidden_but_for_an_end_token_among_them() -> None:
    assert allowed(Structured(regex="a+"), b"a", width=300, eos=[299]) == {*b"a", 299}


def test_logits_of_allowed_tokens_are_not_changed_and_forbidden_ones_stay_so() -> None:
    logits = [-math.inf if i == 98 else i / 8 for i in range(260)]
    made = process(Structured(choices=["a", "b"]), logits, tokenizer=BYTES, eos=[EOS])
    assert made == [97 / 8 if i == 97 else -math.inf for i in range(260)]


def test_the_prompt_is_no_part_of_the_answer() -> None:
    assert allowed(Structured(regex="ab"), prompt=[97]) == {*b"a"}


# JSON has no endless blanks (JSON-01 to JSON-03).

ENDS: list[list[StopCriterion]] = [[stopping.Eos()], [StructuredEnd(json_schema=SCHEMA)]]


@pytest.mark.parametrize("ends", ENDS, ids=["eos", "structured_end"])
def test_a_model_that_loves_blanks_ends_with_json(
    wanting: Wanting, ends: list[StopCriterion]
) -> None:
    model = wanting(b"\n }1")
    made = Pipeline(model, processors=[Structured(json_schema=SCHEMA)], stop_criteria=ends)
    result = made.generate("x", max_new_tokens=200)
    assert (result.text, result.finish_reason) == ('{\n"a"\n:\n1\n}', "stop")
    assert (result.token_ids[-1] == EOS) == (ends == [stopping.Eos()])


@pytest.mark.parametrize("blanks", [0, 1, 3])
def test_blanks_in_a_row_are_bounded(wanting: Wanting, blanks: int) -> None:
    made = pipeline(wanting(b" \n}1"), json_schema=SCHEMA, blanks=blanks)
    text = made.generate("x", max_new_tokens=200).text
    assert json.loads(text) == {"a": 1}
    assert max(map(len, re.findall(r"\s*", text))) == blanks


def test_a_schema_cannot_ask_for_endless_blanks(wanting: Wanting) -> None:
    schema = {**SCHEMA, "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": "[ ]+"}}
    for blanks, text in ((0, '{"a":1}'), (1, '{ "a" : 1 }')):
        made = pipeline(wanting(b" }1"), json_schema=schema, blanks=blanks)
        assert made.generate("x", max_new_tokens=200).text == text


def test_after_the_root_nothing_but_an_end_token_is_allowed() -> None:
    part = Structured(json_schema=SCHEMA, blanks=4)
    assert allowed(part, b'{"a":1}') == {EOS}
    assert not allowed(part, b"") & {*b" \n"}


def test_an_answer_that_is_cut_says_so(wanting: Wanting) -> None:
    result = pipeline(wanting(b"1"), json_schema=SCHEMA).generate("x", max_new_tokens=9)
    assert (result.text, result.finish_reason) == ('{\t"a"\t:11', "length")


# Text is made of whole characters, and strings of what JSON allows in them (JSON-08, JSON-09).

WRONG = {
    "a raw line break": b'"\n"',
    "an escape that there is not": rb'"\q"',
    "half an escape": rb'"\u12"',
    "a lone byte of a character": b'"\xe2"',
    "half of a surrogate pair": rb'"\ud800"',
    "its other half": rb'"\udc00x"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "a byte of none": b'"\xff"',
    "a byte too many": b'"\xc0\xaf"',
}


@pytest.mark.parametrize("wanted", WRONG.values(), ids=WRONG.keys())
def test_strings_are_always_json(wanting: Wanting, wanted: bytes) -> None:
    model = wanting(*(bytes([byte]) + b'"0' for byte in wanted), b'"0')
    schema = {"type": "string", "maxLength": 8}
    result = pipeline(model, json_schema=schema).generate("x", max_new_tokens=60)
    assert result.finish_reason == "stop"
    raw = bytes(result.token_ids[:-1])
    assert raw != wanted
    json.loads(raw.decode()).encode()


def test_random_bytes_become_json() -> None:
    model = ScriptedModel(torch.zeros(1, 260), tokenizer=BYTES, eos_token_ids=[EOS])
    made = pipeline(model, samplers.Categorical(), json_schema={"type": "string", "maxLength": 6})
    results = made.generate(["x"] * 50, seeds=range(50), max_new_tokens=200)
    values = [json.loads(bytes(result.token_ids[:-1]).decode()) for result in results]
    assert len(set(values)) > 40
    assert max(map(len, values)) <= 6


@pytest.mark.parametrize("regex", ["[😀-🙏]+", ".*"])
def test_a_character_of_several_tokens_comes_out(regex: str) -> None:
    ids = [*"😨".encode(), EOS]
    model = ScriptedModel.of_ids(ids, 260, tokenizer=BYTES, eos_token_ids=[EOS])
    assert pipeline(model, regex=regex).generate("x", max_new_tokens=20).text == "😨"


# Rows, ends and errors.


def test_rows_of_a_batch_go_their_own_ways() -> None:
    model = ScriptedModel(torch.zeros(1, 260), tokenizer=BYTES, eos_token_ids=[EOS])
    made = pipeline(model, samplers.Categorical(), regex="a|b[cd]{1,9}|ef")
    prompts, seeds = ["x", "xyz", "xy", "x"], [3, 1, 4, 5]
    together = made.generate(prompts, seeds=seeds)
    texts = [result.text for result in together]
    alone = [made.generate(prompts[i], seed=seeds[i]).text for i in range(4)]
    assert texts == alone
    assert len(set(map(len, texts))) > 1
    assert all(re.fullmatch("a|b[cd]{1,9}|ef", text) for text in texts)


def test_structured_end_ends_a_row_with_the_token_that_completes_it(wanting: Wanting) -> None:
    result = ended_by_the_grammar(wanting(b"nope"), choices=["no", "nope"]).generate("x")
    assert (result.text, result.token_ids) == ("nope", [*b"nope"])
    assert result.stop is not None and result.stop.criterion == "structured_end"


def test_structured_end_ends_a_row_with_an_end_token_too() -> None:
    model = ScriptedModel.of_ids([*b"no", EOS], 260, tokenizer=BYTES, eos_token_ids=[EOS])
    result = ended_by_the_grammar(model, choices=["no", "nope"]).generate("x")
    assert result.token_ids == [*b"no", EOS]


def test_structured_end_does_not_end_what_is_of_another_form(wanting: Wanting) -> None:
    made = Pipeline(wanting(b"z"), stop_criteria=[StructuredEnd(regex="a")])
    assert made.generate("x", max_new_tokens=3).finish_reason == "length"


def test_a_model_without_end_token_needs_structured_end(wanting: Wanting) -> None:
    model = wanting(b"a", has_end=False)
    with pytest.raises(
        EmptyRowError, match="row 0, step 1: .* 'structured' is .* criterion 'struct"
    ):
        pipeline(model, regex="a").generate("x", max_new_tokens=5)
    made = ended_by_the_grammar(model, regex="a")
    assert made.generate("x", max_new_tokens=5).text == "a"


@pytest.mark.parametrize(
    ("option", "form"), [("choices", [""]), ("regex", ""), ("lark", 'start: ""')]
)
def test_a_model_without_end_token_cannot_answer_with_nothing(
    wanting: Wanting, option: str, form: Any
) -> None:
    message = f"structured: {option}: only the empty text matches it, and this model has no end"
    with pytest.raises(OptionError, match=message):
        pipeline(wanting(b"a", has_end=False), **{option: form}).generate("x", max_new_tokens=5)
    ended = pipeline(wanting(b"a"), **{option: form}).generate("x", max_new_tokens=5)
    assert (ended.text, ended.finish_reason) == ("", "stop")


def endless() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    return schema


def deep() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize("schema", [endless(), deep(), {"const": float("nan")}], ids=lambda _: "")
def test_a_schema_that_no_json_text_has_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="it cannot be written down"):
        Structured(json_schema=schema)


def test_a_byte_that_no_token_has_ends_a_run_with_an_error(wanting: Wanting) -> None:
    class NoBNoC(ByteTokenizer):
        def decode(self, token_ids: Sequence[int]) -> str:
            return super().decode([i for i in token_ids if i not in {*b"bc"}])

    model = wanting(b"a")
    model.tokenizer = NoBNoC()
    with pytest.raises(PartError, match=r"step 2: .*\(structured\b.*\) .* no token goes on"):
        pipeline(model, regex="a{2}[bc]").generate("x", max_new_tokens=5)


def test_a_row_with_a_token_that_another_part_has_forced_fails_by_name(wanting: Wanting) -> None:
    def force_z(state: Any, logits: torch.Tensor) -> torch.Tensor:
        forced = torch.where(torch.arange(260) == ord("z"), 0.0, -math.inf).expand_as(logits)
        return logits if state.num_generated[0] else forced

    made = Pipeline(wanting(b"a"), processors=[Structured(regex="a+"), force_z])
    with pytest.raises(
        EmptyRowError, match=r"row 0, step 1: after processors\.0 \(structured\b.*\)"
    ):
        made.generate("x", max_new_tokens=5)
