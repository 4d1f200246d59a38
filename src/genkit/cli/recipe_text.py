"""A recipe as YAML or as data, with the source of each value beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genkit.core.settings import KeyPath
    from genkit.recipes.recipe import Recipe

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_ ./+-]*(?<! )")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_WIDEST = 60


def recipe_text(recipe: Recipe) -> str:
    """The recipe with all its values; reading it gives the recipe back."""
    lines = list(_lines(recipe.to_dict(), (), recipe))
    width = min(_WIDEST, max(len(text) for text, _ in lines))
    return "\n".join(f"{text:<{width}}  # {source}" if source else text for text, source in lines)


def recipe_document(recipe: Recipe) -> dict[str, Any]:
    """The recipe, and each of its values with the source, as plain data."""
    values = [setting.to_dict() for setting in recipe.settings()]
    return {"recipe": recipe.to_dict(), "values": values}


def _lines(data: Any, path: KeyPath, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Lines of YAML, and who says their values; an empty source for a line without a value."""
    if isinstance(data, Mapping):
        for key, item in data.items():
            yield from _entry(f"{scalar_text(key)}:", item, (*path, key), recipe)
        return
    for i, item in enumerate(data):
        inner = list(_lines(item, (*path, i), recipe)) if _is_nested(item) else []
        if not inner:
            yield f"- {_flow(item)}", _source(item, (*path, i), recipe)
        for place, (text, source) in enumerate(inner):
            yield f"{'  ' if place else '- '}{text}", source


def _entry(label: str, item: Any, path: KeyPath, recipe: Recipe) -> Iterator[tuple[str, str]]:
    if not _is_nested(item):
        yield f"{label} {_flow(item)}", _source(item, path, recipe)
        return
    yield label, ""
    for text, source in _lines(item, path, recipe):
        yield f"  {text}", source


def _is_nested(value: Any) -> bool:
    """Whether it takes lines of its own: not a scalar, not empty, not a list of scalars."""
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(scalar_text, value))}]"
    return scalar_text(value)


def _source(value: Any, path: KeyPath, recipe: Recipe) -> str:
    """Who says a value; of a list of scalars everybody who says one of them."""
    paths: Sequence[KeyPath] = [path]
    if isinstance(value, list) and value:
        paths = [(*path, i) for i in range(len(value))]
    return one_line(", ".join(dict.fromkeys(recipe.document.source(each) for each in paths)))


def one_line(text: str) -> str:
    """A text that may stand in a comment: what would break the line is spelt out."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def scalar_text(value: Any) -> str:
    """A scalar as YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return f'"{"".join(map(_character, value))}"'


def _character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "\n":
        return "\\n"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
