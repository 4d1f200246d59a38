"""The options of a part, as tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from genkit.cli.parts import type_text
from genkit.cli.recipe_text import scalar_text
from genkit.core.settings import plain
from reference.docstrings import has_words
from reference.examples import flow
from reference.markdown import as_is, table

_LIMITS = {
    "gt": "above {}",
    "ge": "at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
"""How pydantic calls a limit, and how a person does."""


def undescribed(place: str, model: type[BaseModel]) -> Iterator[str]:
    """Every option, also inside another one, that has no description."""
    for name, found in model.model_fields.items():
        if name != "type" and not has_words(found.description or ""):
            yield f"{place}: its option {name!r} has no description"
    for inner in _nested(model):
        yield from undescribed(f"{place}: {inner.__name__}", inner)


def option_tables(model: type[BaseModel], otherwise: str) -> list[str]:
    """A table of options, and one for each kind of object that an option may hold."""
    fields = {name: f for name, f in model.model_fields.items() if name != "type"}
    if not fields:
        return [otherwise]
    rows = [
        [f"`{name}`", _values(found), as_is(found.description or "")]
        for name, found in fields.items()
    ]
    blocks = [table(["option", "value", "description"], rows)]
    for inner in _nested(model):
        blocks += [
            f"Options of a `{inner.__name__}`{_said_type(inner)}:",
            *option_tables(inner, "None."),
        ]
    return blocks


def _said_type(model: type[BaseModel]) -> str:
    """How a recipe says that an object is of this class, if there are several."""
    found = model.model_fields.get("type")
    return f", `type: {found.default}`" if found is not None else ""


def _values(found: FieldInfo) -> str:
    """What an option may be, and what it is by default: a type in words, a range, a default."""
    kind = type_text(found.annotation).replace(" | ", " or ")
    words = ", ".join(filter(None, [as_is(kind), _range(found)]))
    default = "required" if found.is_required() else f"default `{_default(found)}`"
    return f"{words}<br>{default}"


def _range(found: FieldInfo) -> str:
    limits = [
        words.format(getattr(limit, name))
        for limit in found.metadata
        for name, words in _LIMITS.items()
        if getattr(limit, name, None) is not None
    ]
    return ", ".join(limits)


def _default(found: FieldInfo) -> str:
    value = plain(found.get_default(call_default_factory=True))
    return flow(value) if isinstance(value, dict | list) else scalar_text(value)


def _nested(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The classes of the objects that the options of a model hold, each once."""
    found = [inner for f in model.model_fields.values() for inner in _models_in(f.annotation)]
    yield from dict.fromkeys(found)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
