"""Finds out what a name stands for: a folder, a GGUF file, a hub id or a registered model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genkit.backends.base import ModelSource
from genkit.errors import ModelLoadError, UnknownNameError

ACCEPTED = (
    "A model is a registered name, a local folder, a .gguf file, or a hub id such as "
    "'HuggingFaceTB/SmolLM2-135M-Instruct'"
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Place:
    """Where a model is.

    Attributes:
        kind: what is to be found there.
        where: a path, or the hub id.
        options: options of the backend that the registered name brings.
    """

    kind: Literal["folder", "gguf", "hub"]
    where: str
    options: Mapping[str, Any]


def locate(model: str, models: Mapping[str, ModelSource]) -> Place:
    """Where `model` is; a registered name goes before a path of the same spelling.

    Raises:
        UnknownNameError: it is neither a place nor a registered name.
        ModelLoadError: it is spelt like a path, and nothing is there.
    """
    if model not in models:
        return _place(model, {}, models)
    source = models[model]
    options: dict[str, Any] = {}
    if isinstance(source, Mapping):
        options = dict(source)
        source = options.pop("model")
    if callable(source):
        source = source()
    return _place(os.fspath(source), options, {})


def _place(where: str, options: Mapping[str, Any], models: Mapping[str, ModelSource]) -> Place:
    path = Path(where).expanduser()
    if path.is_dir():
        return Place("folder", str(path), options)
    if path.is_file():
        # Whether it is one is decided by its first bytes, not by its name: the error says more.
        return Place("gguf", str(path), options)
    if path.is_absolute() or where.startswith((".", "~")) or where.endswith(".gguf"):
        raise ModelLoadError(f"there is no file or folder {where!r}. {ACCEPTED}")
    if _HUB_ID.fullmatch(where):
        return Place("hub", where, options)
    hint = ACCEPTED if models else f"{ACCEPTED}. Registered names need a kit: Kit().load(...)"
    raise UnknownNameError("model", where, models, hint=hint)
