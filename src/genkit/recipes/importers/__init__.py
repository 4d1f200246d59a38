"""Recipes out of the settings of other engines, each in its engine's order and meaning."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from genkit.errors import InputError, UnknownNameError
from genkit.plugins.registry import Registry
from genkit.recipes.checker import make_recipe
from genkit.recipes.importers import (
    hf,
    llama_cpp,
    llama_cpp_python,
    mlx,
    onnxruntime_genai,
    openai,
    sglang,
    vllm,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said, Settings, Unsaid, shorten
from genkit.recipes.importers.words import (
    FLAGS,
    Read,
    finite,
    read_words,
    settings_of,
    shown,
)
from genkit.recipes.recipe import Recipe
from genkit.recipes.schema import with_defaults

__all__ = ["ENGINES", "FLAGS", "Imported", "Unsaid", "finite", "import_recipe", "shown"]


class _Engine(NamedTuple):
    write: Callable[[Given, Draft], None]
    aside: Aside


ENGINES: Mapping[str, _Engine] = {
    "hf": _Engine(hf.write, hf.ASIDE),
    "llama-cpp-python": _Engine(llama_cpp_python.write, llama_cpp_python.ASIDE),
    "llama.cpp": _Engine(llama_cpp.write, llama_cpp.ASIDE),
    "mlx": _Engine(mlx.write, mlx.ASIDE),
    "onnxruntime-genai": _Engine(onnxruntime_genai.write, onnxruntime_genai.ASIDE),
    "openai": _Engine(openai.write, openai.ASIDE),
    "sglang": _Engine(sglang.write, sglang.ASIDE),
    "vllm": _Engine(vllm.write, vllm.ASIDE),
}
"""The engines by name."""

DEFAULT_MODEL = "smollm2"

_MODEL_FILES = ("config.json", "genai_config.json")
"""What a folder has that holds a model."""


@dataclass(frozen=True)
class Imported:
    """A recipe out of another engine's settings.

    Attributes:
        engine: whose settings they were.
        recipe: says the source of each value: a setting, the engine's default, or its way.
        unsaid: the settings that are not in the recipe, or not as the engine means them.
    """

    engine: str
    recipe: Recipe
    unsaid: tuple[Unsaid, ...]


def import_recipe(
    engine: str,
    settings: Mapping[str, Any] | Iterable[str | os.PathLike[str]],
    *,
    model: str | None = None,
    registry: Registry | None = None,
) -> Imported:
    """Turn settings of another engine into a recipe with the engine's order, meaning and defaults.

    Args:
        engine: one of `ENGINES`.
        settings: by the engine's names; or the words of a command line: JSON files, `name=value`,
            for llama.cpp and mlx their flags. A later word wins over an earlier one, which is
            listed in `unsaid`.
        model: the model of the recipe; by default the one that the settings name.
        registry: the parts; by default those that are installed.

    Raises:
        UnknownNameError: there is no such engine.
        InputError: a setting cannot be read, or the engine itself would refuse it.
    """
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    read = _read(engine, settings)
    registry = registry or _installed()
    given = Given(engine, read.settings, read.replaced)
    draft = Draft(given, registry)
    _write_model(given, draft, model, read.folder, registry)
    ENGINES[engine].write(given, draft)
    _list_flags(given, read.settings)
    given.finish(ENGINES[engine].aside)
    if given.refused:
        raise InputError("; ".join(given.refused))
    recipe = make_recipe(with_defaults(draft.document()), registry)
    return Imported(engine, recipe, tuple(given.unsaid))


def _read(engine: str, settings: Mapping[str, Any] | Iterable[str | os.PathLike[str]]) -> Read:
    if isinstance(settings, Mapping):
        return settings_of(settings)
    return read_words(engine, settings)


def _installed() -> Registry:
    from genkit.plugins.manager import PluginManager

    return PluginManager().registry


def _write_model(
    given: Given, draft: Draft, model: str | None, folder: Path | None, registry: Registry
) -> None:
    """The backend: the model that was asked for, that is named, whose folder it is, or assumed."""
    named = _named_model(given, registry)
    if model is not None:
        if named is not None and named.value != model:
            given.leave(named, "--model says another one")
        said = Said("model", model, "--model", is_given=True)
    elif named is not None:
        said = named
    elif folder is not None and any((folder / name).is_file() for name in _MODEL_FILES):
        said = Said("model", str(folder), "the folder of the settings", is_given=True)
    else:
        said = Said("model", DEFAULT_MODEL, "assumed: the settings name no model", is_given=False)
    draft.backend("onnxruntime" if _is_graph(said) else "pytorch", model=said)


def _is_graph(model: Said) -> bool:
    """Whether it is a folder for onnxruntime-genai.

    Raises:
        InputError: the name is too long for a file.
    """
    try:
        return (Path(model.value) / "genai_config.json").is_file()
    except OSError as error:
        name = shorten(model.value)
        raise InputError(f"{model.source}: the model {name!r}: {error.strerror}") from None


def _named_model(given: Given, registry: Registry) -> Said | None:
    """The model that the settings name, if it is one that can be loaded."""
    named = given.text("model", *(["hf_repo"] if given.engine == "llama.cpp" else []))
    if named.value is None:
        return None
    if named.name == "hf_repo":
        where, _, variant = named.value.partition(":")
        if variant:
            given.leave(named, f"which file of {where} is taken cannot be said")
        return named.but(where)
    is_place = "/" in named.value or os.path.exists(named.value) or named.value.endswith(".gguf")
    if is_place or named.value in registry.models():
        return named
    given.leave(named, "it is neither a registered name, a file, a folder nor a hub id")
    return None


def _list_flags(given: Given, settings: Settings) -> None:
    """Flags that are none: their names begin with a dash."""
    flags = FLAGS.get(given.engine)
    for name in settings:
        if flags is not None and name.startswith("-"):
            said = given.take(name, read=lambda value: value)
            given.leave(said, flags.unknown(name))
