"""A recipe as plain data that remembers where each value stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from genkit.core.settings import KeyPath
from genkit.errors import RecipeError, RecipeProblem


class Mark(NamedTuple):
    """A place in a file; lines and columns count from 1. Line 0: the data came from no file."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """The data of a recipe before it is checked.

    Attributes:
        data: mappings, lists and scalars.
        file: the name of the file, empty if the data comes from none.
        marks: where the value of each key path stands in the file.
        overrides: the key paths that were set from outside, and by which words.
    """

    data: Any
    file: str = ""
    marks: Mapping[KeyPath, Mark] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Where a value stands, or where it would: `file:line:column`, or the override's words."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.overrides:
                return self.overrides[path[:length]]
            if path[:length] in self.marks:
                line, column = self.marks[path[:length]]
                return f"{self.file}:{line}:{column}" if line else self.file
        return self.file

    def source(self, path: KeyPath) -> str:
        """Who says this value: the file and its line, an override, `given`, or `default`."""
        for length in range(len(path), -1, -1):
            known = path[:length]
            said = self._said(known)
            if said is not None:
                # A key that a mapping does not have is a default; what became of one text or list
                # is what that text or list says.
                left_out = length < len(path) and isinstance(self._value(known), Mapping)
                return "default" if left_out else said
        return "default"

    def _said(self, path: KeyPath) -> str | None:
        if path in self.overrides:
            return self.overrides[path]
        if path not in self.marks:
            return None
        line = self.marks[path].line
        return f"{self.file}:{line}" if line else "given"

    def _value(self, path: KeyPath) -> Any:
        return reduce(lambda data, key: data[key], path, self.data)

    def error(self, path: KeyPath, message: str) -> RecipeError:
        """An error about one value."""
        return RecipeError([self.problem(path, message)])

    def problem(self, path: KeyPath, message: str) -> RecipeProblem:
        """What is wrong with one value."""
        return RecipeProblem(self.place(path), path, message)


def describe(value: Any) -> str:
    """A value and its type, in the words of a recipe: `text 'a'`, `number 3`, `a list`."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"number {value}"
        case str():
            return f"text {value!r}"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return repr(value)


def document_of(data: Any) -> Document:
    """A document of data that came from no file."""
    return Document(data, marks=dict.fromkeys(paths_in(data), Mark(0, 0)))


def paths_in(data: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The key path of every value in nested data, which itself is at `path`."""
    yield path
    if isinstance(data, Mapping | list | tuple):
        for key, value in data.items() if isinstance(data, Mapping) else enumerate(data):
            yield from paths_in(value, (*path, key))
