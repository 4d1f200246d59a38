from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genkit.cli.recipe_text import scalar_text
from genkit.kit import Kit
from genkit.recipes.yaml_reader import read_text


def test_list(genkit: Any, tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "named.py"
    other.write_text(
        "from genkit.plugins import hookimpl\n"
        f"@hookimpl\ndef genkit_register_recipes():\n    return [{str(tiny)!r}]\n"
    )
    done = genkit("--plugin", other, "recipes", "list")
    assert done.status == 0
    assert str(tiny) in done.out
    listed = genkit("--plugin", other, "recipes", "list", "--json").json
    assert {"name": "tiny", "path": str(tiny), "plugin": "named"} in listed


def test_show_gives_every_value_and_its_source(genkit: Any, tiny: Path) -> None:
    done = genkit("recipes", "show", tiny, "--set", "processors.0.temperature=0.5")
    assert done.status == 0
    lines = {tuple(line.replace("- ", "").split("  #")) for line in done.out.splitlines()}
    sources = {text.strip(): source.strip() for text, source in (p for p in lines if len(p) == 2)}
    assert sources["temperature: 0.5"] == "--set processors.0.temperature=0.5"
    assert sources["system: Brief."] == f"{tiny}:4" or sources['system: "Brief."'] == f"{tiny}:4"
    assert sources["overflow: error"] == "default"


def test_what_is_shown_is_the_recipe(genkit: Any, tmp_path: Path, tiny: Path, plugin: Path) -> None:
    settings = [
        'context.system="two\\nlines: \\"a\\" # \\u2028 \\\\ é"',
        "stop_criteria.+={type: stop_strings, strings: ['\\n', 'yes', '1e3', ' x', '']}",
        "stop_criteria.+={type: stop_token_ids, token_ids: [1, 2]}",
        "seed=7",
    ]
    settings[1] = settings[1].replace(", ''", "")
    overrides = [word for setting in settings for word in ("--set", setting)]
    done = genkit("recipes", "show", tiny, *overrides)
    assert done.status == 0, done.err
    shown = tmp_path / "shown.yaml"
    shown.write_text(done.out)
    kit = Kit([plugin])
    assert kit.recipe(shown) == kit.recipe(tiny, settings)


def test_show_as_json(genkit: Any, tiny: Path) -> None:
    document = genkit("recipes", "show", tiny, "--json").json
    assert document["recipe"]["context"]["system"] == "Brief."
    values = {value["path"]: value for value in document["values"]}
    assert values["processors.0.temperature"]["value"] == 0.9
    assert values["context.overflow"]["source"] == "default"


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, 1e-7, 1e30, "a", "yes", "1e3", "", " a", "a: b", "a #b", "-", "0x1", "é"],
)
def test_scalars_are_read_back(value: Any) -> None:
    assert read_text(f"x: {scalar_text(value)}", "").data == {"x": value}


def test_check(genkit: Any, tiny: Path) -> None:
    done = genkit("recipes", "check", tiny)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"{tiny}: ok"


def test_check_warns_of_suspicious_orders(genkit: Any, tiny: Path) -> None:
    order = "processors=[{type: top_p, p: 0.9}, {type: temperature, temperature: 0.7}]"
    done = genkit("recipes", "check", tiny, "--set", order)
    assert done.status == 0
    assert "warning: processors.0 (top_p) comes before processors.1 (temperature)" in done.out
    [report] = genkit("recipes", "check", tiny, "--set", order, "--json").json["recipes"]
    assert report["errors"] == []
    assert len(report["warnings"]) >= 1


def test_check_lists_every_error_with_its_place(genkit: Any, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "version: 1\nbackend: {type: tiny}\nprocessors:\n"
        "  - {type: top_k, k: 0}\n  - {type: top_q, p: 0.5}\nseed: 1:30\n"
    )
    done = genkit("recipes", "check", file, tiny)
    assert done.status == 1
    assert f"error: {file}:4" in done.err
    assert f"error: {file}:5" in done.err
    assert "did you mean 'top_p'?" in done.err or "top_k" in done.err
    assert f"error: {file}:6" in done.err
    assert f"{tiny}: ok" in done.out
    document = genkit("recipes", "check", file, "--json")
    assert document.status == 1
    assert document.json["ok"] is False
    paths = [error["path"] for error in document.json["recipes"][0]["errors"]]
    assert paths == ["processors.0.k", "processors.1.type", "seed"]


def test_check_of_an_unknown_name(genkit: Any) -> None:
    done = genkit("recipes", "check", "nothing")
    assert done.status == 1
    assert "no recipe named 'nothing'" in done.err


def test_schema_has_the_parts_of_plugins(genkit: Any) -> None:
    done = genkit("recipes", "schema")
    assert done.status == 0
    assert {"Tiny", "TopK", "Chat"} <= set(done.json["$defs"])


def test_real_process(process: Any) -> None:
    done = process("recipes", "list", "--json")
    assert done.status == 0
    assert isinstance(done.json, list)
