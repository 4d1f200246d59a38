"""Reads the YAML of recipes: what the eye sees is what is meant.

Scalars follow YAML 1.2: `yes`, `no`, `on`, `off` are text, `1e-3` is a number. What readers of YAML
take for different numbers (`010`, `1:30`, `1_000`, `0x10`) stays text, which no numeric option
accepts. Tags, anchors, aliases, duplicate keys and several documents in one file are refused, so
that nothing is executed, nothing grows, and nothing is silently overwritten.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from genkit.core.settings import KeyPath
from genkit.errors import RecipeError, RecipeProblem
from genkit.recipes.document import Document, Mark

MAX_DEPTH = 32

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"(true|True|TRUE)|false|False|FALSE")
# Longer numbers are refused by Python itself, for the time that converting them takes.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(
    r"(?=[^.eE]*[.eE])[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def read_file(path: str | os.PathLike[str]) -> Document:
    """Read a recipe file.

    Raises:
        RecipeError: there is no such file, it is not UTF-8, or not YAML as recipes use it.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        message = f"the recipe cannot be read: {error.strerror or error}"
        raise RecipeError([RecipeProblem(str(path), (), message)]) from None
    except UnicodeDecodeError as error:
        message = f"the recipe is not UTF-8: byte {error.start} is wrong"
        raise RecipeError([RecipeProblem(str(path), (), message)]) from None
    except ValueError:  # a NUL, or half a surrogate pair; what cannot be printed is escaped
        message = f"the recipe cannot be read: no file can be called {str(path)!r}"
        raise RecipeError([RecipeProblem("", (), message)]) from None
    return read_text(text, str(path))


def read_text(text: str, file: str) -> Document:
    """Read the text of a recipe; `file` is how messages call it.

    Raises:
        RecipeError: it is not YAML as recipes use it.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        marks: dict[KeyPath, Mark] = {}
        data = _plain(node, (), marks) if node is not None else None
    except yaml.MarkedYAMLError as error:
        raise RecipeError([_problem(error, file)]) from None
    except yaml.YAMLError as error:
        message = f"this is not YAML: {' '.join(str(error).split())}"
        raise RecipeError([RecipeProblem(file, (), message)]) from None
    return Document(data, file, marks)


def read_value(text: str) -> Any:
    r"""Read one value as it is given on a command line.

    What begins like a list, a mapping or a quoted text is YAML; anything else is one plain scalar
    to its last character, so that `C:\dir` and `You are: brief` need no quotes.

    Raises:
        RecipeError: it begins like YAML and is none.
    """
    text = text.strip()
    return read_text(text, "").data if text.startswith(("[", "{", '"', "'")) else scalar(text)


def scalar(text: str) -> Any:
    """The value of a scalar written without quotes."""
    if _NULL.fullmatch(text):
        return None
    if found := _BOOL.fullmatch(text):
        return found[1] is not None
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Loader(yaml.BaseLoader):
    """Composes nodes, and refuses what recipes have no use for."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            raise _refused("anchors and aliases are not used in recipes", event)
        if getattr(event, "tag", None) is not None:
            raise _refused(f"tags are not used in recipes, found {event.tag}", event)
        if self.depth >= MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels of nesting", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _plain(node: yaml.Node, path: KeyPath, marks: dict[KeyPath, Mark]) -> Any:
    """The value of a node; notes where each part of it stands."""
    marks.setdefault(path, _mark(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, marks)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), marks) for i, item in enumerate(node.value)]
    quoted = getattr(node, "style", None) is not None
    return node.value if quoted else scalar(node.value)


def _mapping(
    node: yaml.MappingNode, path: KeyPath, marks: dict[KeyPath, Mark]
) -> dict[str | int, Any]:
    mapping: dict[str | int, Any] = {}
    for key_node, value_node in node.value:
        key = _plain(key_node, (), {})
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise _refused("a key must be text or a whole number", key_node)
        if key in mapping:
            first = marks[(*path, key)].line
            raise _refused(f"the key {key!r} occurs twice, first in line {first}", key_node)
        marks[(*path, key)] = _mark(key_node)
        mapping[key] = _plain(value_node, (*path, key), marks)
    return mapping


def _refused(message: str, where: Any) -> yaml.MarkedYAMLError:
    return _Refusal(problem=message, problem_mark=where.start_mark)


class _Refusal(yaml.MarkedYAMLError):
    """Well-formed YAML that recipes do not use."""


def _problem(error: yaml.MarkedYAMLError, file: str) -> RecipeProblem:
    what = error.problem if isinstance(error, _Refusal) else f"this is not YAML: {_said(error)}"
    mark = error.problem_mark or error.context_mark
    place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
    return RecipeProblem(place if file else "", (), str(what))


def _said(error: yaml.MarkedYAMLError) -> str:
    if error.problem == "but found another document":
        return "more than one document in a file"
    return ", ".join(filter(None, (error.context, error.problem)))


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)
