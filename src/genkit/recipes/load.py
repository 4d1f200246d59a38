"""From YAML to a checked recipe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from genkit.plugins.registry import Registry
from genkit.recipes.checker import make_recipe
from genkit.recipes.document import Document, document_of
from genkit.recipes.overrides import override
from genkit.recipes.recipe import Recipe
from genkit.recipes.schema import with_defaults
from genkit.recipes.yaml_reader import read_file

RecipeSource = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a recipe file, the name of a registered recipe, or its data."""


def load(source: RecipeSource, registry: Registry, overrides: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        source: a path (it exists, or looks like one), a registered name, or plain data.
        registry: the parts that the recipe may name.
        overrides: ``path.to.key=value``, applied before the check.

    Raises:
        RecipeError: the recipe cannot be read, or something in it is wrong.
        UnknownNameError: no recipe is registered under that name.
    """
    document = with_defaults(_read(source, registry))
    return make_recipe(override(document, overrides), registry)


def _read(source: RecipeSource, registry: Registry) -> Document:
    if isinstance(source, Mapping):
        return document_of(source)
    if _is_path(source):
        return read_file(source)
    return read_file(registry.recipe_path(str(source)))


def _is_path(source: str | os.PathLike[str]) -> bool:
    if not isinstance(source, str) or Path(source).suffix in (".yaml", ".yml"):
        return True
    return os.sep in source or "/" in source or os.path.isfile(source)
