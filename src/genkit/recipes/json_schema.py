"""The JSON schema of recipes, for editors. It imports the class of every registered part."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from genkit.errors import GenkitError
from genkit.plugins.plugin import one_line
from genkit.plugins.registry import Registry
from genkit.recipes.schema import DEFAULTS, LISTS, MAX_SEED, REQUIRED, SECTIONS, VERSION

if TYPE_CHECKING:
    from genkit.components.base import Component

_logger = logging.getLogger("genkit.recipes")


def json_schema(registry: Registry) -> dict[str, Any]:
    """What a recipe may say, given the parts that are registered.

    A part whose class cannot be imported is left out with a warning; one with an option that JSON
    has no type for is there without its options.
    """
    from pydantic.json_schema import models_json_schema

    classes = {kind: _classes(registry, kind) for kind in SECTIONS.values()}
    mode: Literal["validation"] = "validation"
    opaque = {each: note for group in classes.values() for each in group if (note := _note(each))}
    every = [(each, mode) for group in classes.values() for each in group if each not in opaque]
    references, definitions = models_json_schema(every)
    for reference in references.values():
        _require_type(_resolve(reference, definitions))
    choices = {
        kind: {
            "oneOf": [opaque[each] if each in opaque else references[each, mode] for each in group],
            "discriminator": {"propertyName": "type"},
        }
        for kind, group in classes.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "genkit recipe",
        "type": "object",
        "additionalProperties": False,
        "required": list(REQUIRED),
        "properties": {
            "version": {"const": VERSION},
            **{key: _section(key, choices[kind]) for key, kind in SECTIONS.items()},
            "seed": {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": MAX_SEED},
                    {"type": "null"},
                ],
                "default": None,
            },
        },
        "$defs": definitions.get("$defs", {}),
    }


def _classes(registry: Registry, kind: str) -> list[type[Component]]:
    classes = []
    for entry in registry.parts(kind):
        try:
            classes.append(entry.part_class)
        except GenkitError as error:
            _logger.warning("left out of the schema: %s", error)
    return classes


def _note(part_class: type[Component]) -> dict[str, Any] | None:
    """What stands for a part whose options have no schema; None for one whose options have."""
    try:
        part_class.model_json_schema()
    except Exception as error:  # an option of a plugin may be of any type
        name = part_class.type_name()
        _logger.warning("in the schema without its options: %s: %s", name, one_line(error))
        return {
            "type": "object",
            "description": f"{part_class.summary()} Its options cannot be shown.".strip(),
            "properties": {"type": {"const": name}},
            "required": ["type"],
        }
    return None


def _section(key: str, choice: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": choice} if key in LISTS else dict(choice)
    if key in DEFAULTS:
        schema["default"] = DEFAULTS[key]
    return schema


def _resolve(reference: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    name = reference["$ref"].removeprefix("#/$defs/")
    found: dict[str, Any] = definitions["$defs"][name]
    return found


def _require_type(schema: dict[str, Any]) -> None:
    """In Python `type` has a default; in a recipe it is what chooses the part."""
    schema["properties"]["type"].pop("default", None)
    schema["required"] = ["type", *schema.get("required", [])]
