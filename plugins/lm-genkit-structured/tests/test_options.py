"""What an option says is taken from text or file; what is wrong is refused before a token."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import genkit_structured
from genkit import Kit, Pipeline
from genkit.errors import OptionError, RecipeError, UnsupportedError
from genkit.testing import ByteTokenizer, ScriptedModel
from genkit_structured.structured import Structured
from genkit_structured.structured_end import StructuredEnd

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no form": ({}, r"lark: exactly one of json_schema, regex, choices, lark .* found none"),
    "two forms": ({"regex": "a", "choices": ["a"]}, "choices: exactly one .* regex and choices"),
    "no choice": ({"choices": []}, "choices: at least 1 is needed"),
    "blanks of a regex": ({"regex": "a", "blanks": 2}, "blanks: this goes with json_schema"),
    "fewer than none": ({"json_schema": {}, "blanks": -1}, "blanks: .* found -1"),
    "a list": ({"json_schema": [1]}, r"json_schema: a mapping or the path .* found \[1\]"),
    "schema": ({"json_schema": {"type": "x"}}, "json_schema: llguidance refuses it: Invalid type"),
    "keyword": ({"json_schema": {"uniqueItems": True}}, "json_schema: .*uniqueItems"),
    "never true": (
        {"json_schema": {"type": "integer", "minimum": 3, "maximum": 2}},
        "json_schema: llguidance refuses it: Unsatisfiable",
    ),
    "one of several that fit": (
        {"json_schema": {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}},
        r"json_schema: llguidance refuses it: oneOf .* not supported\. Say anyOf, if [\w ]+\.$",
    ),
    "regex": ({"regex": "(a"}, "regex: llguidance refuses it: .*unclosed group"),
    "look-around": ({"regex": "(?=a)b"}, "regex: llguidance refuses it: .*look-around"),
    "lark": ({"lark": "start: foo"}, "lark: llguidance refuses it: .*unknown name"),
    "no such schema": ({"json_schema": "no.json"}, "json_schema: there is no readable file 'no"),
    "no such grammar": ({"lark": "no.lark"}, "lark: there is no readable file 'no.lark'"),
}


@pytest.mark.parametrize("part", [Structured, StructuredEnd])
@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_by_name(part: Any, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=f"(?s)^{part.type_name()}: {message}"):
        part(**options)


def test_a_recipe_says_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "version: 1\nbackend: {type: pytorch, model: none}\n"
        'processors:\n  - {type: structured, regex: "(a"}\n'
    )
    kit = Kit(plugins=[genkit_structured], entry_points=False)
    with pytest.raises(RecipeError, match=r"bad\.yaml:4:\d+: processors\.0\.regex: llguidance"):
        kit.recipe(path)


def test_a_recipe_has_a_schema_inside() -> None:
    form = {"json_schema": {"type": "object", "properties": {"type": {"type": "string"}}}}
    recipe = Kit(plugins=[genkit_structured], entry_points=False).recipe(
        {
            "version": 1,
            "backend": {"type": "pytorch", "model": "none"},
            "processors": [{"type": "structured", **form}],
            "stop_criteria": [{"type": "structured_end", **form}],
        }
    )
    assert [*recipe.processors] == [Structured(**form)]
    assert [*recipe.stop_criteria] == [StructuredEnd(**form)]


def test_schema_and_grammar_may_be_files(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "a.json", tmp_path / "a.lark"
    schema.write_text(json.dumps({"const": "ä"}))
    grammar.write_text('start: "b" "c"')
    assert Structured(json_schema=schema).text() == Structured(json_schema={"const": "ä"}).text()
    assert Structured(json_schema=str(schema)) == Structured(json_schema=schema)
    assert Structured(lark=str(grammar)).text() == Structured(lark='start: "b" "c"').text()
    schema.write_text("[]")
    with pytest.raises(OptionError, match="json_schema: .* holds no mapping"):
        Structured(json_schema=schema)
    schema.write_text("{")
    with pytest.raises(OptionError, match="json_schema: .* is no JSON file"):
        Structured(json_schema=schema)


def test_without_a_tokenizer_it_is_refused() -> None:
    made = Pipeline(ScriptedModel(torch.zeros(1, 8)), processors=[Structured(regex="a")])
    with pytest.raises(UnsupportedError, match="'structured' reads the text of tokens"):
        made.generate([1], max_new_tokens=1)


def test_a_grammar_without_a_text_is_refused() -> None:
    model = ScriptedModel(torch.zeros(1, 260), tokenizer=ByteTokenizer(), eos_token_ids=[257])
    made = Pipeline(model, processors=[Structured(regex=r"[^\s\S]")])
    with pytest.raises(OptionError, match="regex: no text of this vocabulary matches it"):
        made.generate("x", max_new_tokens=1)
    assert model.num_calls == 0


def test_a_part_can_be_sent_elsewhere() -> None:
    part = Structured(json_schema={"const": 1})
    assert pickle.loads(pickle.dumps(part)) == part
