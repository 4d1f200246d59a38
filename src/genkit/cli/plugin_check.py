"""`genkit plugins check`: whether the laws hold for everything that a plugin brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genkit.cli import errors, options
from genkit.cli.output import print_json, print_table, progress
from genkit.cli.settings import prints_aside, settings_of
from genkit.errors import InputError

if TYPE_CHECKING:
    from genkit.plugins.plugin import Plugin
    from genkit.testing.verification.law_row import LawRow

_EXAMPLES = """\b
Examples:
  genkit plugins check calm
  genkit plugins check sketch.py
  genkit plugins check lm-genkit-lucky/ --cases 200
  genkit plugins check calm --set calm.gap=0.5 --json
"""


def add_to(parent: typer.Typer) -> None:
    """Register the command."""
    parent.command("check", epilog=_EXAMPLES)(check)


def check(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="An installed plugin, a Python file, or the folder of a package.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PART.OPTION=VALUE",
            help="An option of a part, where its default is not what is to be checked; may be "
            "given several times.",
        ),
    ] = None,
    cases: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many runs each law is tried on; by default 25."),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Check the laws on everything that a plugin brings.

    Each part is made with its default options. A law that is broken is shown with the smallest run
    that breaks it; one about something that the part does not promise says nothing of it. Of a
    plugin that watches runs it is checked that it leaves them as they are, of its models that they
    are where it says, of its recipes that they can be read, and of its commands that they answer
    --help. The exit status is 1 if a law does not hold.

    Processors, samplers and stop criteria take seconds, caches, decoders, backends and exporters
    half a minute each.
    """
    from genkit.cli.command_check import rows_of_commands
    from genkit.cli.plugin_source import find_plugin

    kit, found = find_plugin(settings_of(ctx), target)
    given = _options(found, overrides or [])
    with progress("Loading the laws ...") as report, prints_aside():
        from genkit.testing.verification.plugin_check import NUM_CASES, check_plugin

        num_cases = NUM_CASES if cases is None else cases
        checked = check_plugin(kit, found, given, num_cases=num_cases, progress=report)
        root: Any = ctx.find_root().command
        commands = rows_of_commands(kit, found, taken=root.commands)
        checked = replace(checked, laws=(*checked.laws, *commands))
    if json:
        print_json(
            {
                "plugin": found.name,
                "laws": [row.to_dict() for row in checked.laws],
                "holds": checked.holds,
            }
        )
    else:
        _print(found, checked.laws, checked.broken)
    if not checked.holds:
        raise typer.Exit(errors.FAILED)


def _options(plugin: Plugin, settings: list[str]) -> dict[str, Any]:
    """The options given for each part, by its name."""
    from genkit.recipes.document import Document
    from genkit.recipes.overrides import override

    parts: dict[str, Any] = {name: {} for _, name in plugin.parts}
    given = override(Document(parts), settings).data
    for name, found in given.items():
        if not isinstance(found, dict):
            raise InputError(
                f"--set {name}={found}: the options of {name!r} are given one by one, as "
                f"{name}.OPTION=VALUE"
            )
    return {name: found for name, found in given.items() if found}


def _print(plugin: Plugin, laws: tuple[LawRow, ...], broken: tuple[LawRow, ...]) -> None:
    if laws:
        print_table(["part", "law", "holds", "detail"], list(_lines(laws)))
    for (part, detail), rows in _alike(broken).items():
        typer.echo(f"\nBROKEN: {rows[0].name}, {part}\n  {rows[0].statement}\n  {detail}")
        if others := len(rows) - 1:
            typer.echo(f"  ({others} more of its laws {_are(others)} broken in the same way)")
    counts = Counter(row.holds for row in laws)
    told = f"{counts[True]} hold, {counts[False]} {_are(counts[False])} broken"
    does = "does" if counts[None] == 1 else "do"
    told += f", {counts[None]} {does} not apply" if counts[None] else ""
    typer.echo(f"\n{plugin}: {told}" if laws else f"{plugin} is loaded and brings nothing to check")


def _alike(broken: Iterable[LawRow]) -> dict[tuple[str | None, str], list[LawRow]]:
    """Broken laws by what shows it: a part that raises breaks nearly all of them, once."""
    alike: dict[tuple[str | None, str], list[LawRow]] = {}
    for row in broken:
        alike.setdefault((row.part, row.detail), []).append(row)
    return alike


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _lines(laws: Iterable[LawRow]) -> Iterator[list[str]]:
    for part, rows in groupby(laws, lambda row: row.part or ""):
        for i, row in enumerate(rows):
            verdict = {True: "yes", False: "NO", None: "-"}[row.holds]
            detail = "see below" if row.holds is False else row.detail
            yield ["" if i else part, row.name, verdict, detail]
