"""What is checked of the commands that a plugin brings."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import click
import typer

from genkit.cli.plugin_commands import name_of, one_by_one
from genkit.errors import FAILURES

if TYPE_CHECKING:
    from collections.abc import Container

    from genkit.kit import Kit
    from genkit.plugins.plugin import Plugin
    from genkit.testing.verification.law_row import LawRow

COMMAND_LAWS = {
    "can be added": "`genkit_register_commands` adds commands to the app without an error",
    "answers --help": "its help, and that of every command in it, is shown with the exit status 0",
    "has a free name": "no command of genkit, and no other one of the plugin, has this name",
}
"""What holds for a command of a plugin, by the name of the law."""


def rows_of_commands(kit: Kit, plugin: Plugin, taken: Container[str]) -> Iterator[LawRow]:
    """A row for each law of each command that a plugin adds.

    Args:
        kit: one that has loaded the plugin.
        plugin: which of its plugins.
        taken: the names of genkit's own commands.
    """
    if not plugin.implements("genkit_register_commands"):
        return
    offered = dict(kit.plugins.commands(typer.Typer))
    if plugin not in offered:
        yield _row("commands", "can be added", plugin.cause)
        return
    seen: set[str] = set()
    for app in one_by_one(offered[plugin]):
        try:
            commands = typer.main.get_group(app).commands
        except FAILURES as error:
            yield _row(f"command {name_of(app)}", "answers --help", _words(error))
            continue
        for name, command in commands.items():
            place = f"command {name}"
            yield _row(place, "answers --help", next(_without_help(command, [name]), ""))
            owner = "genkit" if name in taken else str(plugin) if name in seen else ""
            yield _row(place, "has a free name", owner and f"{owner} has {name!r} already")
            seen.add(name)


def _without_help(command: Any, path: list[str]) -> Iterator[str]:
    """What is wrong with the help of a command, and of those in it."""
    shown = " ".join([*path, "--help"])
    if "--help" not in command.get_help_option_names(click.Context(command)):
        yield f"`genkit {shown}` would run it: it has no option --help"
        return
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            status = command.main(["--help"], prog_name="genkit", standalone_mode=False)
    except FAILURES as error:
        yield f"`genkit {shown}` raised {_words(error)}"
        return
    if status:
        yield f"`genkit {shown}` ended with the status {status}"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _without_help(inner, [*path, name])


def _row(place: str, law: str, detail: str) -> LawRow:
    from genkit.testing.verification.law_row import LawRow

    return LawRow(law, COMMAND_LAWS[law], not detail, 1, detail, part=place)


def _words(error: BaseException) -> str:
    from genkit.plugins.plugin import one_line

    return one_line(error)
