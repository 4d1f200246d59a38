"""The page of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from genkit.cli.settings import Settings
from reference.docstrings import has_words
from reference.markdown import as_is, fence, prose, table
from reference.undocumented import Undocumented


def command_page(app: typer.Typer) -> str:
    """Every command of an app, those of plugins left out.

    Raises:
        Undocumented: a command or an option has no help, or a command has no example.
    """
    contexts = list(walk(app))
    lacks = [lack for context in contexts for lack in _lacks(context)]
    if lacks:
        raise Undocumented(lacks)
    return "\n\n".join(["# Command line", *map(_section, contexts)])


def walk(app: typer.Typer) -> Iterator[Any]:
    """The contexts of the command, of its commands, and of theirs."""
    command = typer.main.get_command(app)
    yield from _walk(command, app.info.name or "genkit", None)


def _walk(command: Any, name: str, parent: Any) -> Iterator[Any]:
    context = command.make_context(name, [], parent=parent, obj=Settings(), resilient_parsing=True)
    yield context
    for inner, subcommand in getattr(command, "commands", {}).items():
        yield from _walk(subcommand, inner, context)


def shown(context: Any) -> str:
    """The lines that show a command at work."""
    head, _, lines = (context.command.epilog or "").partition(":\n")
    return inspect.cleandoc(lines) if "Example" in head else ""


def _section(context: Any) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    arguments, options = _rows(context, "argument"), _rows(context, "option")
    inner = getattr(command, "commands", {})
    blocks = [
        f"{'#' * (2 + context.command_path.count(' '))} {context.command_path}",
        prose(command.help),
        fence("text", usage),
    ]
    if arguments:
        blocks.append(table(["argument", "what it is"], arguments))
    if options:
        blocks.append(table(["option", "what it does"], options))
    if inner:
        rows = [[f"`{name}`", each.get_short_help_str(300)] for name, each in inner.items()]
        blocks.append(table(["command", "what it does"], rows))
    if lines := shown(context):
        blocks.append(fence("shell", lines))
    return "\n\n".join(blocks)


def _rows(context: Any, kind: str) -> list[list[str]]:
    records = [p.get_help_record(context) for p in _parameters(context, kind)]
    # A line may end before each of several choices: together they are wider than a phone.
    return [["`" + name.replace("|", "` `|") + "`", as_is(text)] for name, text in records]


def _parameters(context: Any, *kinds: str) -> list[Any]:
    return [p for p in context.command.params if p.param_type_name in kinds and not p.hidden]


def _lacks(context: Any) -> Iterator[str]:
    command = context.command
    place = f"command {context.command_path}"
    if not has_words(command.help or ""):
        yield f"{place}: it has no help"
    if not has_words(shown(context)):
        yield f"{place}: its epilog has no example"
    for parameter in _parameters(context, "argument", "option"):
        if not has_words(parameter.help or ""):
            yield f"{place}: {parameter.param_type_name} {parameter.name!r} has no help"
