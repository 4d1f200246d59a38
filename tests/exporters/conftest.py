"""Folders of models that an exporter can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from table_exporter import table_model


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def table_folder(tmp_path: Path) -> Path:
    """A model without a tokenizer that the exporter `table` gets right."""
    folder = tmp_path / "table-model"
    table_model().save_pretrained(folder)
    return folder


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Saves a model of the zoo, without a tokenizer."""

    def to_folder(name: str, **changes: Any) -> Path:
        folder = tmp_path / f"{name}-model"
        zoo.build(name, **changes).save_pretrained(folder)
        return folder

    return to_folder
