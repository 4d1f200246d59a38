"""The values that a run is made with, and who says each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from enum import Enum
from os import PathLike, fspath
from typing import Any, NamedTuple

KeyPath = tuple[str | int, ...]
"""Where a value stands: ``("processors", 0, "p")``."""


class Setting(NamedTuple):
    """One value of a pipeline.

    Attributes:
        path: where it stands in a recipe.
        value: what it is, as plain data.
        source: who says so: `chat.yaml:7`, the words of an override, `given` in Python, `call` for
            an argument of the call, `default`.
    """

    path: KeyPath
    value: Any
    source: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r} ({self.source})"

    @property
    def name(self) -> str:
        """The path as overrides write it: `processors.0.p`."""
        return ".".join(map(str, self.path))

    def to_dict(self) -> dict[str, Any]:
        """The setting as plain data."""
        return {"path": self.name, "value": self.value, "source": self.source}


def plain(value: Any) -> Any:
    """A part, or the value of an option, as what YAML and JSON can hold."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        names = sorted(fields, key=lambda name: name != "type")
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Enum):
        return value.value
    if callable(value):  # as a recipe would name it
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f"{value.__module__}:{name}"
    return fspath(value) if isinstance(value, PathLike) else value


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The values at the ends of nested data; an empty list or mapping is an end too."""
    if not value or not isinstance(value, dict | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, key))


def settings_of(path: KeyPath, part: Any, source: str | None = None) -> Iterator[Setting]:
    """The settings of a part, or of a list of parts.

    Args:
        path: where it stands.
        part: a component, or any callable, which has its name only.
        source: who says all of them; None: `given` or `default`, as each option was.
    """
    from genkit.core.contracts import name_of  # it brings torch, and a recipe is read without

    if isinstance(part, tuple):
        if not part:
            yield Setting(path, [], source or "given")
        for i, item in enumerate(part):
            yield from settings_of((*path, i), item, source)
        return
    if not hasattr(type(part), "model_fields"):
        yield Setting((*path, "type"), name_of(part), source or "given")
        return
    said = {"type", *part.model_fields_set}
    for inner, value in leaves(plain(part)):
        who = source or ("given" if inner[0] in said else "default")
        yield Setting((*path, *inner), value, who)
