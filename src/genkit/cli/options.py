"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genkit.cli.settings import settings_of
from genkit.recipes.schema import MAX_SEED

DEFAULT_RECIPE = "smollm2-chat"


def _add_plugins(ctx: typer.Context, paths: list[Path] | None) -> list[Path]:
    settings_of(ctx).plugins += paths or []
    return paths or []


def _set_debug(ctx: typer.Context, debug: bool) -> bool:
    settings_of(ctx).debug |= debug
    return debug


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Load a plugin that is a single Python file; may be given several times.",
        callback=_add_plugins,
        is_eager=True,
    ),
]

Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show the traceback of an error.",
        callback=_set_debug,
        is_eager=True,
    ),
]

Recipe = Annotated[
    str,
    typer.Option("--recipe", "-r", metavar="FILE|NAME", help="A recipe file, or a named recipe."),
]

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe file, or a named recipe.")
]

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value of the recipe, e.g. processors.0.temperature=0.5; may be given "
        "several times.",
    ),
]

System = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The system message, in place of the recipe's."),
]

Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        help="End the answer before this text; may be given several times. Replaces the stop "
        "strings of the recipe, if it has any.",
    ),
]

Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_SEED,
        metavar="N",
        help="The seed; by default the recipe's, and without one another at every run.",
    ),
]

MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The most tokens to generate, in place of the recipe's."),
]

Escapes = Annotated[
    bool,
    typer.Option(
        "--escapes",
        help=r"Read \n, \t, \\, \u00e9 and the like in prompt, system message and stop strings "
        "alike; by default every character stands for itself.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
