from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from genkit.cli.parts import type_text


def test_json_lists_every_part_with_its_options(genkit: Any) -> None:
    done = genkit("parts", "--json")
    assert (done.status, done.err) == (0, "")
    parts = {(part["kind"], part["name"]): part for part in done.json}
    top_k = parts["logits_processor", "top_k"]
    assert (top_k["plugin"], top_k["source"]) == (
        "genkit",
        "genkit.components.processors.top_k:TopK",
    )
    assert top_k["summary"]
    option, *others = top_k["options"]
    assert [other["name"] for other in others] == ["ties", "min_keep"]
    assert (option["name"], option["required"], option["type"]) == ("k", True, "integer >= 1")
    assert parts["backend", "tiny"]["plugin"] == "models"
    strings = parts["stop_criterion", "stop_strings"]["options"]
    assert [(o["name"], o["default"]) for o in strings] == [
        ("strings", None),
        ("include", False),
        ("min_new_tokens", 0),
    ]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("processors", "top_p"),
        ("processor", "top_p"),
        ("logits_processors", "top_p"),
        ("logits-processor", "top_p"),
        ("logits processor", "top_p"),
        ("samplers", "greedy"),
        ("Sampler", "greedy"),
        ("cache", "dynamic"),
        ("caches", "dynamic"),
        ("cache_manager", "dynamic"),
        ("stop_criteria", "eos"),
        ("stop_criterion", "eos"),
        ("contexts", "chat"),
        ("backend", "pytorch"),
        ("decoders", "autoregressive"),
    ],
)
def test_kinds_are_understood_as_people_write_them(genkit: Any, word: str, name: str) -> None:
    done = genkit("parts", word)
    assert done.status == 0
    assert f" {name} " in done.out


def test_one_part_with_all_about_it(genkit: Any) -> None:
    done = genkit("parts", "contexts", "chat")
    assert done.status == 0
    for words in ("system", '"error" | "truncate_left"', "part of genkit", "contexts:Chat"):
        assert words in done.out
    [part] = genkit("parts", "contexts", "chat", "--json").json
    assert part["name"] == "chat"


@pytest.mark.parametrize(("name", "grade"), [("prefix", "exact"), ("sink_window", "lossy")])
def test_a_cache_manager_is_shown_with_its_grade(genkit: Any, name: str, grade: str) -> None:
    assert f"grade   {grade} (" in genkit("parts", "caches", name).out
    assert genkit("parts", "caches", name, "--json").json[0]["grade"] == grade


def test_other_parts_have_no_grade(genkit: Any) -> None:
    assert "grade" not in genkit("parts", "samplers", "greedy").out
    assert {part["grade"] for part in genkit("parts", "samplers", "--json").json} == {None}


def test_a_grade_that_does_not_exist_is_said_to_be_none(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "graded.py"
    file.write_text(
        "from genkit.components.base import CacheManager\n"
        "from genkit.plugins import hookimpl\n"
        "class Graded(CacheManager):\n"
        "    type: str = 'graded'\n"
        "    grade = 'splendid'\n"
        "@hookimpl\n"
        "def genkit_register_cache_managers():\n"
        "    return [Graded]\n"
    )
    done = genkit("--plugin", file, "parts", "caches", "graded")
    assert "grade   splendid (there is no such grade)" in done.out


def test_every_option_of_a_built_in_cache_manager_is_described(genkit: Any) -> None:
    listed = genkit("parts", "caches", "--json").json
    options = [option for part in listed for option in part["options"]]
    assert len(options) == 6
    assert all(option["description"] for option in options)


def test_unknown_names_suggest_the_nearest(genkit: Any) -> None:
    assert "did you mean 'processors'?" in genkit("parts", "proccesors").err
    assert "did you mean 'top_p'?" in genkit("parts", "processors", "topp").err
    done = genkit("parts", "top_p")
    assert done.status == 1
    assert "genkit parts processors top_p" in done.err


def test_a_part_that_cannot_be_imported_does_not_spoil_the_list(
    genkit: Any, tmp_path: Path
) -> None:
    file = tmp_path / "lost.py"
    file.write_text(
        "from genkit.plugins import hookimpl, lazy\n"
        "@hookimpl\n"
        "def genkit_register_samplers():\n"
        "    return [lazy('lost', 'nowhere.at.all:Lost'), lazy('named', 'no.where:X', 'Said.')]\n"
    )
    done = genkit("--plugin", file, "parts", "samplers")
    assert done.status == 0
    assert "Said." in done.out
    assert "cannot be used" in done.out
    listed = {p["name"]: p for p in genkit("--plugin", file, "parts", "samplers", "--json").json}
    assert listed["lost"]["options"] is None
    assert "nowhere" in listed["lost"]["error"]
    assert genkit("--plugin", file, "parts", "samplers", "lost", "--json").status == 1


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "integer"),
        (Optional[float], "number | null"),  # noqa: UP045  (the old form is what is tested)
        (int | None, "integer | null"),
        (bool | Literal["auto"], 'true | false | "auto"'),
        (tuple[int, ...], "list of integer"),
        (dict[int, float], "mapping of integer to number"),
        (Annotated[str, "x"], "text"),
        (Path, "Path"),
    ],
)
def test_types_as_a_person_writes_them(annotation: Any, text: str) -> None:
    assert type_text(annotation) == text


def test_real_process(process: Any) -> None:
    done = process("parts", "samplers")
    assert (done.status, done.err) == (0, "")
    assert "categorical" in done.out


UNSHOWN = '''
from collections.abc import Callable
from typing import Any, Literal

from pydantic import ConfigDict, Field

from genkit.components.base import LogitsProcessor
from genkit.plugins import hookimpl


class Thing:
    def __repr__(self): return "a thing"


def fail(): raise KeyError("oops")


class Odd(LogitsProcessor):
    """Has options that JSON has no form for."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    type: Literal["odd"] = "odd"
    call: Callable[[int], int]
    thing: Thing = Thing()
    most: float = float("inf")
    made: list[int] = Field(default_factory=fail)


@hookimpl
def genkit_register_logits_processors():
    return [Odd]
'''


def test_options_that_json_cannot_show_do_not_spoil_the_rest(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(UNSHOWN)
    listed = {p["name"]: p for p in genkit("--plugin", file, "parts", "--json").json}
    assert listed["top_k"]["options"]
    defaults = {o["name"]: o["default"] for o in listed["odd"]["options"]}
    assert defaults == {
        "call": None,
        "thing": "a thing",
        "most": "inf",
        "made": "cannot be shown: KeyError: 'oops'",
    }
    assert "a thing" in genkit("--plugin", file, "parts", "processors", "odd").out
    done = genkit("--plugin", file, "recipes", "schema")
    assert (done.status, "in the schema without its options: odd" in done.err) == (0, True)
    choices = done.json["properties"]["processors"]["items"]["oneOf"]
    [odd] = [choice for choice in choices if "$ref" not in choice]
    assert odd["properties"] == {"type": {"const": "odd"}}
    assert "TopK" in done.json["$defs"]
