from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genkit.kit import Kit

SETTINGS = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "topk": 5, "eos_token_id": 2}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(SETTINGS))
    return path


def test_the_recipe_is_printed_and_the_rest_is_listed(
    genkit: Any, config: Path, tmp_path: Path
) -> None:
    done = genkit("recipes", "import", "--from", "hf", config, "max_new_tokens=9")
    assert done.status == 0
    assert done.err == (
        "not in the recipe: topk = 5: hf has no setting of this name, did you mean 'top_k'?\n"
    )
    lines = done.out.splitlines()
    assert lines[:3] == [
        "# Settings of hf, in its order and with its defaults.",
        "# What this recipe does not say:",
        "#   topk = 5: hf has no setting of this name, did you mean 'top_k'?",
    ]
    said = {tuple(map(str.strip, line.split("  #"))) for line in lines if "  #" in line}
    assert ("temperature: 0.6", "generation_config.json: temperature") in said
    assert ("k: 50", "default of hf") in said
    assert ("ties: keep", "as in hf") in said
    assert ("limit: 9", "max_new_tokens=9") in said
    file = tmp_path / "imported.yaml"
    file.write_text(done.out)
    checked = genkit("recipes", "check", file)
    assert (checked.status, checked.out) == (0, f"{file}: ok\n")
    kinds = [part.type for part in Kit(entry_points=False).recipe(file).processors]
    assert kinds == ["temperature", "top_k", "top_p"]


def test_as_json(genkit: Any, config: Path) -> None:
    done = genkit("recipes", "import", "--from", "hf", config, "--json", "--model", "a/b")
    assert (done.status, done.err) == (0, "")
    document = done.json
    assert document.keys() == {"engine", "recipe", "values", "unsaid"}
    assert document["engine"] == "hf"
    values = {value["path"]: value for value in document["values"]}
    assert values["backend.model"] == {"path": "backend.model", "value": "a/b", "source": "--model"}
    assert values["processors.2.p"]["value"] == document["recipe"]["processors"][2]["p"] == 0.95
    [unsaid] = document["unsaid"]
    assert (unsaid["setting"], unsaid["value"]) == ("topk", 5)


@pytest.mark.parametrize(
    "words",
    [
        ["--", "--temp", "0", "-l", "3+inf", "-n", "5", "-m", "model.gguf"],
        ["--temp", "0", "-l", "3+inf", "-n", "5", "-m", "model.gguf"],
        ["--temp 0 -l 3+inf -n 5 -m model.gguf"],
        ["llama-server --temp 0 -l 3+inf -n 5 -m model.gguf"],
    ],
)
def test_a_command_line_of_llama_cpp(genkit: Any, words: list[str]) -> None:
    done = genkit("recipes", "import", "--json", "--from", "llama.cpp", *words)
    assert done.status == 0, done.err
    assert done.json["recipe"]["backend"]["model"] == "model.gguf"
    assert done.json["recipe"]["processors"][-1] == {"type": "temperature", "temperature": 0.0}
    [unsaid] = done.json["unsaid"]
    assert (unsaid["setting"], unsaid["value"]) == ("logit_bias", {"3": "Infinity"})


def test_a_command_line_of_mlx(genkit: Any) -> None:
    words = ["--model", "a/b", "--temp", "0.7", "--temp", "0.5", "-m", "9", "-qa", "-p", "Hi"]
    done = genkit("recipes", "import", "--from", "mlx", *words)
    assert done.status == 0, done.err
    assert "not in the recipe: temp = 0.7: --temp 0.5 says it too, and counts\n" in done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "temperature: 0.5 # --temp 0.5" in lines
    assert "limit: 9 # -m 9" in lines
    assert "model: a/b # --model" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "vlm"], "there is no engine named 'vlm', did you mean 'vllm'?"),
        (["--from", "vllm", "temperature=3"], "temperature=3: vllm wants temperature at least 0"),
        (["--from", "vllm", "nothing.json"], "nothing.json: No such file or directory"),
        (["--from", "vllm", "--top", "3"], "'--top': vllm takes files and KEY=VALUE, no flags"),
    ],
)
def test_user_errors(genkit: Any, words: list[str], message: str) -> None:
    done = genkit("recipes", "import", *words)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error: {message}")
    assert done.err.count("\n") == 1


def test_without_an_engine(genkit: Any) -> None:
    assert genkit("recipes", "import").status == 2


def test_help_has_an_example(genkit: Any) -> None:
    assert "generation_config.json" in genkit("recipes", "import", "--help").out


@pytest.mark.parametrize("name", ["x\nseed: 5\n#", "a\nb", "a\u2028b", "a\r\x85b"])
def test_a_name_cannot_break_out_of_a_comment(genkit: Any, tmp_path: Path, name: str) -> None:
    config = tmp_path / "odd.json"
    config.write_text(json.dumps({"do_sample": True, "top_k": 3, name: 1}))
    done = genkit("recipes", "import", "--from", "hf", config)
    file = tmp_path / "imported.yaml"
    file.write_text(done.out)
    recipe = Kit(entry_points=False).recipe(file)
    assert recipe.seed is None and recipe.processors[0].k == 3


def test_a_value_cannot_break_out_of_a_comment(genkit: Any, tmp_path: Path) -> None:
    done = genkit("recipes", "import", "--from", "vllm", "stop=a\nseed: 77")
    file = tmp_path / "imported.yaml"
    file.write_text(done.out)
    recipe = Kit(entry_points=False).recipe(file)
    [strings] = [part for part in recipe.stop_criteria if part.type == "stop_strings"]
    assert strings.strings == ("a\nseed: 77",) and recipe.seed is None


def test_a_long_value_is_shortened_in_what_is_listed(genkit: Any, tmp_path: Path) -> None:
    config = tmp_path / "long.json"
    config.write_text(json.dumps({"unknown": ["word"] * 500}))
    done = genkit("recipes", "import", "--from", "hf", config)
    assert max(map(len, done.err.splitlines())) < 250
