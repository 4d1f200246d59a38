"""`genkit recipes`: named recipes, and what is in a recipe.

`import` and `diff` have files of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from genkit.cli import options, recipe_diff, recipe_import
from genkit.cli.output import print_json, print_table
from genkit.cli.settings import prints_aside, settings_of
from genkit.errors import GenkitError, RecipeError

if TYPE_CHECKING:
    from genkit.kit import Kit

app = typer.Typer(
    name="recipes",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, show, check, compare and import recipes.",
    epilog="""\b
Examples:
  genkit recipes show smollm2-chat > mine.yaml
  genkit recipes diff smollm2-chat mine.yaml
""",
)


def add_to(parent: typer.Typer) -> None:
    """Register the commands."""
    recipe_import.add_to(app)
    recipe_diff.add_to(app)
    parent.add_typer(app)


@app.command("list", epilog="\b\nExample:\n  genkit recipes list")
def list_recipes(
    ctx: typer.Context,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """List the named recipes."""
    registry = settings_of(ctx).kit().registry
    rows = [
        {"name": name, "path": str(path), "plugin": registry.entry("recipe", name).plugin.name}
        for name, path in registry.recipes().items()
    ]
    if json:
        print_json(rows)
    elif rows:
        print_table(
            ["recipe", "plugin", "file"], [[r["name"], r["plugin"], r["path"]] for r in rows]
        )
    else:
        typer.echo("No plugin registers a recipe.", err=True)


@app.command(epilog="\b\nExample:\n  genkit recipes show smollm2-chat --set backend.dtype=float64")
def show(
    ctx: typer.Context,
    recipe: options.RecipeArgument,
    overrides: options.Overrides = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Show a recipe with all its values, defaults included, and where each comes from.

    The output is a recipe itself.
    """
    kit = settings_of(ctx).kit()
    with prints_aside():
        chosen = kit.recipe(recipe, overrides or ())
    if json:
        from genkit.cli.recipe_text import recipe_document

        print_json(recipe_document(chosen))
        return
    from genkit.cli.recipe_text import recipe_text

    typer.echo(recipe_text(chosen))


@app.command(epilog="\b\nExample:\n  genkit recipes check my-recipe.yaml")
def check(
    ctx: typer.Context,
    recipes: Annotated[
        list[str], typer.Argument(metavar="RECIPE...", help="Recipe files, or named recipes.")
    ],
    overrides: options.Overrides = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Check recipes without loading a model.

    Errors are listed with file, line and key, and the exit status is 1. Warnings tell of what is
    allowed and probably not meant, such as a suspicious order of processors.
    """
    kit = settings_of(ctx).kit()
    with prints_aside():
        reports = [_check(kit, recipe, overrides or []) for recipe in recipes]
    failed = any(report["errors"] for report in reports)
    if json:
        print_json({"ok": not failed, "recipes": reports})
    else:
        for report in reports:
            _print_report(report)
    raise typer.Exit(int(failed))


@app.command(epilog="\b\nExample:\n  genkit recipes schema > recipe.schema.json")
def schema(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Print the JSON schema of recipes, for editors, with the parts of all plugins."""
    from genkit.recipes.json_schema import json_schema

    registry = settings_of(ctx).kit().registry
    with prints_aside():
        made = json_schema(registry)
    print_json(made)


def _check(kit: Kit, name: str, overrides: list[str]) -> dict[str, Any]:
    report: dict[str, Any] = {"recipe": name, "errors": [], "warnings": []}
    try:
        recipe = kit.recipe(name, overrides)
    except RecipeError as error:
        report["errors"] = [
            {"place": p.place, "path": ".".join(map(str, p.path)), "message": p.message}
            for p in error.problems
        ]
    except GenkitError as error:
        report["errors"] = [{"place": "", "path": "", "message": str(error)}]
    else:
        from genkit.recipes.order import order_warnings

        report["warnings"] = order_warnings(recipe)
    return report


def _print_report(report: dict[str, Any]) -> None:
    for error in report["errors"]:
        text = ": ".join(filter(None, (error["place"], error["path"], error["message"])))
        typer.echo(f"error: {text}", err=True)
    for warning in report["warnings"]:
        typer.echo(f"{report['recipe']}: warning: {warning}")
    if not report["errors"]:
        typer.echo(f"{report['recipe']}: ok")
