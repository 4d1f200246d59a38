"""Changes to a recipe from outside: `--set processors.0.temperature=0.5`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from genkit.core.settings import KeyPath
from genkit.errors import RecipeError, RecipeProblem, nearest
from genkit.recipes.document import Document, describe, paths_in
from genkit.recipes.yaml_reader import read_value

_T = TypeVar("_T")
_WHOLE = re.compile(r"[0-9]{1,18}")


def override(document: Document, settings: Iterable[str]) -> Document:
    """The document with each `path.to.key=value` applied, in this order.

    A list's items are named by their numbers, from 0; `+` appends one.

    Raises:
        RecipeError: a setting has no `=`, its value cannot be read, or its path leads nowhere.
    """
    data = copy.deepcopy(document.data)
    marks, overrides = dict(document.marks), dict(document.overrides)
    for setting in settings:
        words = f"--set {setting}"
        keys, value = _parse(setting, words)
        path = _set(data, words, keys, value)
        marks = _outside(path, marks)
        overrides = _outside(path, overrides) | dict.fromkeys(paths_in(value, path), words)
    return replace(document, data=data, marks=marks, overrides=overrides)


def _parse(setting: str, words: str) -> tuple[list[str], Any]:
    keys, equals, text = setting.partition("=")
    if not equals or not all(keys.strip().split(".")):
        raise _error(words, (), "expected path.to.key=value")
    try:
        return keys.strip().split("."), read_value(text)
    except RecipeError as error:
        raise _error(words, (), error.problems[0].message) from None


def _set(data: Any, words: str, keys: list[str], value: Any) -> KeyPath:
    """Write a value into nested data; returns the path with numbers for list items."""
    path: KeyPath = ()
    for key in keys[:-1]:
        step = _step(data, key, path, words)
        path = (*path, step)
        try:
            data = data[step]
        except KeyError:
            known = f"{nearest(key, map(str, data))}; keys: {', '.join(map(str, data))}"
            raise _error(words, path, f"there is no such key{known}") from None
    if keys[-1] == "+" and isinstance(data, list):
        data.append(value)
        return (*path, len(data) - 1)
    step = _step(data, keys[-1], path, words)
    data[step] = value
    return (*path, step)


def _step(data: Any, key: str, path: KeyPath, words: str) -> str | int:
    """A key of a mapping, or the number of an item that a list has."""
    if isinstance(data, dict):
        return int(key) if _WHOLE.fullmatch(key) and int(key) in data else key
    if not isinstance(data, list):
        raise _error(words, path, f"has no keys: it is {describe(data)}")
    if not _WHOLE.fullmatch(key) or int(key) >= len(data):
        known = f"they are numbered 0 to {len(data) - 1}" if data else "the list is empty"
        raise _error(words, path, f"there is no item {key!r}; {known}, and + appends one")
    return int(key)


def _outside(path: KeyPath, places: dict[KeyPath, _T]) -> dict[KeyPath, _T]:
    """The places that are neither at this path nor below it."""
    return {known: place for known, place in places.items() if known[: len(path)] != path}


def _error(words: str, path: KeyPath, message: str) -> RecipeError:
    return RecipeError([RecipeProblem(words, path, message)])
