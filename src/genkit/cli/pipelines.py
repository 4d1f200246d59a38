"""From the options of a command to a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from genkit.cli.output import progress
from genkit.cli.settings import prints_aside, settings_of
from genkit.errors import InputError

if TYPE_CHECKING:
    from genkit.pipeline import Pipeline
    from genkit.recipes.recipe import Recipe


def read_recipe(
    ctx: typer.Context,
    source: str,
    overrides: Sequence[str] | None,
    *,
    system: str | None = None,
    stop: Sequence[str] | None = None,
) -> Recipe:
    """The recipe that a command asks for. No model is loaded.

    Raises:
        GenkitError: it cannot be read, or an option does not go with it.
    """
    kit = settings_of(ctx).kit()
    with prints_aside():
        recipe = kit.recipe(source, overrides or ())
    if system is not None:
        recipe = _with_system(recipe, system)
    return _with_stop_strings(recipe, stop) if stop else recipe


def build(ctx: typer.Context, recipe: Recipe) -> Pipeline:
    """Load the model of a recipe and put the pipeline together, and say what takes long."""
    model = getattr(recipe.backend, "model", recipe.backend.type)
    with progress(f"Loading {model} ...") as report:
        kit = settings_of(ctx).kit()
        with prints_aside():
            return kit.build(recipe, progress=report)


def _with_system(recipe: Recipe, system: str) -> Recipe:
    context = recipe.context
    if "system" not in type(context).model_fields:
        raise InputError(
            f"--system: the recipe's context is {context.type!r}, which has no system message; "
            "use a recipe with `context: {type: chat}`"
        )
    options = {name: getattr(context, name) for name in context.model_fields_set}
    return replace(recipe, context=type(context)(**{**options, "system": system}))


def _with_stop_strings(recipe: Recipe, strings: Sequence[str]) -> Recipe:
    """In place of the stop strings that the recipe has, or before all other criteria.

    First in the list: where several end a row in one step the first counts, and a stop string is to
    be cut also from an answer that has reached its limit.
    """
    from genkit.components.stopping import StopStrings

    others = [c for c in recipe.stop_criteria if not isinstance(c, StopStrings)]
    return replace(recipe, stop_criteria=(StopStrings(strings=tuple(strings)), *others))
