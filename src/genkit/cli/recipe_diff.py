"""`genkit recipes diff`: where two recipes part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from genkit.cli import options
from genkit.cli.output import print_json
from genkit.cli.settings import prints_aside, settings_of

if TYPE_CHECKING:
    from genkit.recipes.diff import Difference


def add_to(parent: typer.Typer) -> None:
    """Register the command."""
    parent.command(epilog="\b\nExample:\n  genkit recipes diff smollm2-chat my-recipe.yaml")(diff)


def diff(
    ctx: typer.Context,
    first: options.RecipeArgument,
    second: options.RecipeArgument,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Show where two recipes part, and what each difference does.

    The exit status is 0 where they mean the same, which is said where they are written differently,
    and 1 where their tokens can differ; also, with a message, where one cannot be read.
    """
    from genkit.recipes.diff import diff as differences_of

    kit = settings_of(ctx).kit()
    with prints_aside():
        differences = differences_of(kit.recipe(first), kit.recipe(second))
    same = not any(difference.matters for difference in differences)
    if json:
        found = [difference._asdict() for difference in differences]
        print_json({"first": first, "second": second, "same": same, "differences": found})
    else:
        _print(first, second, differences, same)
    raise typer.Exit(int(not same))


def _print(first: str, second: str, differences: list[Difference], same: bool) -> None:
    if differences:
        typer.echo(f"- {first}\n+ {second}")
    for difference in differences:
        typer.echo(f"{difference.path}: {_comment(difference)}")
        for sign, value, other in (
            ("-", difference.first, difference.second),
            ("+", difference.second, difference.first),
        ):
            if value is not None or not isinstance(other, dict):  # a part that one has not
                typer.echo(f"  {sign} {_value(value)}")
    if same:
        typer.echo("They mean the same.")


def _comment(difference: Difference) -> str:
    return difference.reason if difference.matters else f"no matter; {difference.reason}"


def _value(value: object) -> str:
    from genkit.recipes.importers import shown

    return value if isinstance(value, str) else shown(value)
