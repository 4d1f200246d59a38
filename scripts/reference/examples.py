"""A part at work: the lines of a recipe."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import yaml

from genkit.components.base import Component
from genkit.plugins.registry import PartEntry
from genkit.recipes.schema import LISTS, SECTIONS

_LAYOUT = re.compile(r"\n*In a recipe: ``(?P<yaml>[^`]+)``")
"""The line with which a docstring shows the part in a recipe."""


def example(entry: PartEntry) -> str:
    """The lines of a recipe that use a part; of an exporter, which is in no recipe, a command."""
    part_class = entry.part_class
    shown = _LAYOUT.search(inspect.getdoc(part_class) or "")
    if shown:
        return shown["yaml"]
    part = flow({"type": entry.name, **example_options(part_class)})
    for section, kind in SECTIONS.items():
        if kind == entry.kind:
            return f"{section}:\n  - {part}" if section in LISTS else f"{section}: {part}"
    return f"genkit export smollm2 out --exporter {entry.name}"


def example_options(part_class: type[Component]) -> dict[str, Any]:
    """Those of the first object that its docstring makes, and the examples of required fields."""
    options = _first_made(part_class)
    for name, found in part_class.model_fields.items():
        if found.is_required() and found.examples:
            options[name] = found.examples[0]
    return options


def _first_made(part_class: type[Component]) -> dict[str, Any]:
    source = "\n".join(
        line[4:]
        for line in (inspect.getdoc(part_class) or "").splitlines()
        if line.startswith((">>> ", "... "))
    )
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == part_class.__name__:
            return {str(k.arg): ast.literal_eval(k.value) for k in node.keywords if _is_plain(k)}
    return {}


def _is_plain(keyword: ast.keyword) -> bool:
    try:
        ast.literal_eval(keyword.value)
    except ValueError:
        return False
    return True


def without_example(docstring: str) -> str:
    """A docstring without the line of a recipe, which stands in a block of its own."""
    return _LAYOUT.sub("", docstring)


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()
