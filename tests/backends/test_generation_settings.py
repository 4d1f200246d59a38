"""Whose word counts where a call, a recipe and a model's own file give settings of generation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from genkit import Kit
from genkit.core.result import Result


@pytest.fixture
def folder(save_folder: Callable[..., Path]) -> Path:
    """A model that recommends settings."""
    folder = save_folder("llama")
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, "do_sample": True, "temperature": 1.0, "top_k": 3}))
    return folder


def answer(folder: Path, recipe: dict[str, object], **call: int) -> Result:
    backend = {"type": "pytorch", "model": str(folder)}
    data = {"version": 1, "backend": backend, **recipe}
    pipeline = Kit(entry_points=False).build(data)
    result: Result = pipeline.generate([1, 2, 3], seed=0, **call)
    return result


def said(result: Result) -> dict[str, tuple[object, str]]:
    return {setting.name: (setting.value, setting.source) for setting in result.settings}


TOP_5 = {
    "processors": [{"type": "top_k", "k": 5}],
    "sampler": {"type": "categorical"},
    "stop_criteria": [{"type": "max_new_tokens", "limit": 4}],
}


def test_the_recipe_counts_not_the_file_of_the_model(folder: Path) -> None:
    """TRUNC-20: a model's file is taken over with `genkit recipes import`, never in silence."""
    found = said(answer(folder, TOP_5))
    assert found["processors.0.k"] == (5, "given")
    assert found["processors.0.ties"][1] == "default"
    assert not any("temperature" in name for name in found)


def test_what_nobody_says_is_neutral(folder: Path) -> None:
    """TRUNC-20: neither the model's file nor a hidden default adds a part."""
    found = said(answer(folder, {}, max_new_tokens=2))
    assert found["processors"] == ([], "default")
    assert found["sampler.type"] == ("greedy", "default")


def test_the_call_counts_before_the_recipe(folder: Path) -> None:
    """TRUNC-20."""
    result = answer(folder, TOP_5, max_new_tokens=2)
    assert said(result)["stop_criteria.0.limit"] == (2, "call")
    assert result.num_generated_tokens == 2


def test_an_override_counts_before_the_recipe(folder: Path) -> None:
    """TRUNC-20."""
    backend = {"type": "pytorch", "model": str(folder)}
    recipe = Kit(entry_points=False).recipe(
        {"version": 1, "backend": backend, **TOP_5}, ["processors.0.k=2"]
    )
    settings = {setting.name: setting for setting in recipe.build().settings}
    assert settings["processors.0.k"].value == 2
    assert "processors.0.k=2" in settings["processors.0.k"].source
