"""The JSON files of a model folder, and what they say of end tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from genkit.errors import ModelLoadError

EXPORT_REPORT = "genkit_export.json"
"""What `genkit export` puts beside a graph: where it comes from, and how it compares with that."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelLoadError: it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} is no JSON object")
    return content


def json_if_there(path: Path) -> dict[str, Any]:
    """The same, and an empty object where there is no such file."""
    return read_json(path) if path.is_file() else {}


def ids_in(value: Any, where: str) -> Iterable[int]:
    """The ids of an `eos_token_id`: one, a list or none.

    Raises:
        ModelLoadError: it is something else.
    """
    if value is None:
        return ()
    ids = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ModelLoadError(
            f"{where}: eos_token_id is {value!r}; it must be an id, or a list of ids"
        )
    return ids
