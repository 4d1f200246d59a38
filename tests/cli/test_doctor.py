from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_json(genkit: Any, tmp_path: Path) -> None:
    kept = tmp_path / "home" / "gguf"
    kept.mkdir(parents=True)
    (kept / "weights").write_bytes(b"x" * 1000)
    done = genkit("doctor", "--json")
    assert done.status == 0
    document = done.json
    assert document["versions"]["torch"]
    assert {"name": "tiny", "works": True, "cause": None} in document["backends"]
    assert document["devices"][0]["device"] == "cpu"
    assert document["home"]["path"] == str(tmp_path / "home")
    assert document["home"]["contents"] == [{"name": "gguf", "bytes": 1000}]
    assert "models" in {plugin["name"] for plugin in document["plugins"]}
    assert "model" not in document


def test_missing_packages_are_no_failure_and_name_their_extra(genkit: Any) -> None:
    done = genkit("doctor")
    assert done.status == 0
    for package in genkit("doctor", "--json").json["optional"]:
        if package["version"] is None:
            assert f"lm-genkit[{package['extra']}]" in done.out


def test_a_recipe_s_model_is_described_with_its_end_tokens(genkit: Any, tiny: Path) -> None:
    arguments = ["doctor", "--recipe", tiny, "--set", "backend.eos=true"]
    model = genkit(*arguments, "--json").json["model"]
    assert model["eos_token_ids"] == [257, 259]
    assert model["context_length"] == 256
    done = genkit(*arguments)
    assert done.status == 0
    assert "257, 259" in done.out


def test_what_is_broken_is_shown_and_the_rest_goes_on(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "broken_parts.py"
    file.write_text(
        "from genkit.plugins import hookimpl, lazy\n"
        "from genkit.errors import MissingPackageError, ModelLoadError\n"
        "@hookimpl\n"
        "def genkit_register_backends():\n"
        "    return [lazy('lost', 'nowhere.at.all:Lost')]\n"
        "def find():\n"
        "    raise ModelLoadError('the weights are not installed')\n"
        "@hookimpl\n"
        "def genkit_register_models():\n"
        "    return {'gone': find, 'there': '/a/folder'}\n"
    )
    done = genkit("--plugin", file, "doctor")
    assert done.status == 0
    assert "nowhere" in done.out
    assert "the weights are not installed" in done.out
    assert "/a/folder" in done.out
    models = {m["name"]: m for m in genkit("--plugin", file, "doctor", "--json").json["models"]}
    assert models["gone"]["works"] is False
    assert models["there"]["source"] == "/a/folder"


def test_real_process(process: Any) -> None:
    done = process("doctor", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["versions"]["genkit"]


@pytest.mark.parametrize("kind", ["unheard_of", "llama"])
def test_a_model_that_brings_code_does_not_run_it(genkit: Any, tmp_path: Path, kind: str) -> None:
    folder, marker = tmp_path / "model", tmp_path / "marker"
    folder.mkdir()
    code = f"open({str(marker)!r}, 'w').close()\nclass Config: ...\nclass Model: ...\n"
    (folder / "code.py").write_text(code)
    classes = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    classes["AutoTokenizer"] = "code.Tokenizer"
    config = json.dumps({"model_type": kind, "auto_map": classes})
    (folder / "config.json").write_text(config)
    (folder / "tokenizer_config.json").write_text(config)
    recipe = tmp_path / "code.yaml"
    recipe.write_text(f"version: 1\nbackend: {{type: pytorch, model: {folder}}}\n")
    done = genkit("doctor", "--recipe", recipe)
    assert done.status == 1
    assert done.err.startswith("error: ")
    assert not marker.exists()
