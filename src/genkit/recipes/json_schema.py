"""The JSON schema of recipes, for editors. It imports the class of every registered part."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from genkit.errors import GenkitError
from genkit.plugins.registry import Registry
from genkit.recipes.schema import DEFAULTS, LISTS, MAX_SEED, REQUIRED, SECTIONS, VERSION

if TYPE_CHECKING:
    from genkit.components.base import Component

_logger = logging.getLogger("genkit.recipes")


def json_schema(registry: Registry) -> dict[str, Any]:
    """What a recipe may say, given the parts that are registered.

    A part whose class cannot be imported is left out with a warning.
    """
    from pydantic.json_schema import models_json_schema

    classes = {kind: _classes(registry, kind) for kind in SECTIONS.values()}
    mode: Literal["validation"] = "validation"
    every = [(part_class, mode) for group in classes.values() for part_class in group]
    references, definitions = models_json_schema(every)
    for reference in references.values():
        _require_type(_resolve(reference, definitions))
    choices = {
        kind: {
            "oneOf": [references[part_class, mode] for part_class in group],
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
