"""The page of the Python names."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import griffe

from reference.docstrings import has_words
from reference.markdown import as_is, prose, table
from reference.undocumented import Undocumented

MET_BY_PARTS = (
    "genkit.core.run.Run",
    "genkit.core.state.GenerationState",
    "genkit.core.random.RowRandom",
    "genkit.core.loop.autoregressive",
    "genkit.core.result.Steps",
    "genkit.core.contracts",
    "genkit.components.base.Component",
    "genkit.components.base.check_token_ids",
    "genkit.components.caches.wrapped.WrappedCache",
    "genkit.components.samplers.categorical.inverse_cdf",
    "genkit.text.tokenizer.Tokenizer",
    "genkit.text.huggingface.HuggingFaceTokenizer",
    "genkit.backends.base.ModelSource",
    "genkit.backends.base.Progress",
    "genkit.errors.OptionProblem",
)
"""What authors of parts may import besides the base classes and what the packages offer."""

RECIPES = (
    "genkit.recipes.recipe.Recipe",
    "genkit.recipes.importers.import_recipe",
    "genkit.recipes.importers.Imported",
    "genkit.recipes.importers.Unsaid",
)
"""What stands behind `load_recipe` and `genkit recipes import`."""


def python_page(modules: Sequence[str]) -> str:
    """Every name that these modules offer, recipes, and what those who write parts meet.

    Raises:
        Undocumented: a module, class, function, method or value has no docstring.
    """
    paths = [*modules, *RECIPES, *MET_BY_PARTS]
    lacks = [lack for path in paths for lack in _lacks(path, read(path))]
    if lacks:
        raise Undocumented(lacks)
    sections = [_section(read(module)) for module in modules]
    for title, paths in (("Recipes", RECIPES), ("What parts meet", MET_BY_PARTS)):
        sections += [f"## {title}", *(f"::: {path}" for path in paths)]
    return "\n\n".join(["# Python", *sections])


@functools.cache
def _package(name: str) -> griffe.Object:
    package = griffe.load(name)
    assert isinstance(package, griffe.Object)
    return package


def read(path: str) -> griffe.Object:
    """A module, or what is in one, as the source defines it; nothing is imported."""
    package, _, rest = path.partition(".")
    found = _package(package)[rest] if rest else _package(package)
    return found.final_target if isinstance(found, griffe.Alias) else found


def _section(module: griffe.Object) -> str:
    offered = _offered(module)
    blocks = [f"## {module.path}", prose(_docstring(module))]
    blocks += [f"::: {value.canonical_path}" for value in offered.values() if not value.is_module]
    rows = [
        [f"`{module.path}.{name}`", as_is(_docstring(value).partition("\n")[0])]
        for name, value in offered.items()
        if value.is_module
    ]
    if rows:
        blocks.append(table(["module", "what is there"], rows))
    return "\n\n".join(blocks)


def _offered(module: griffe.Object) -> dict[str, griffe.Object]:
    """What the module has in `__all__`; its version speaks for itself."""
    names = (name for name in map(str, module.exports or ()) if not name.startswith("__"))
    return {name: read(f"{module.path}.{name}") for name in names}


def _docstring(found: griffe.Object) -> str:
    return found.docstring.value if found.docstring else ""


def _lacks(path: str, found: griffe.Object) -> Iterator[str]:
    """Which of an object, what a module offers and the methods of a class says nothing.

    A name that a file gives to a function, and a folder to a module, would be taken for the module.
    """
    if not has_words(_docstring(found)):
        yield f"{path} has no docstring"
    for name, inner in {**_offered(found), **_methods(found)}.items():
        if not inner.is_module:
            yield from _lacks(f"{path}.{name}", inner)
        elif not inspect.ismodule(getattr(importlib.import_module(found.path), name)):
            yield f"{path}.{name} has the name of a module beside it"


def _methods(found: griffe.Object) -> dict[str, Any]:
    members = found.members.items() if found.is_class else ()
    return {
        name: member
        for name, member in members
        if not name.startswith("_") and (member.is_function or member.has_labels("property"))
    }
