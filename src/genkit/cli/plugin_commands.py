"""The commands that plugins bring."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from genkit.cli.settings import prints_aside

if TYPE_CHECKING:
    from genkit.plugins.plugin import Plugin

_logger = logging.getLogger("genkit.cli")


def plugin_commands(files: Iterable[Path], taken: Container[str]) -> dict[str, Any]:
    """Every command that plugins add, by its name; names that are `taken` stay ours.

    The plugins are those that are installed, and the files given. No `Kit` is needed for that: the
    help, which lists the commands, is spared what recipes import.

    Raises:
        PluginError: one of the files cannot be loaded.
    """
    from genkit.plugins.manager import PluginManager

    with prints_aside():
        offered = list(PluginManager(files).commands(typer.Typer))
    commands: dict[str, Any] = {}
    owners: dict[str, Plugin] = {}
    for plugin, offer in offered:
        for app in one_by_one(offer):
            for name, command in _commands_of(app, plugin).items():
                if name in taken or name in commands:
                    owner = owners.get(name, "genkit")
                    words = "the command %r of %s is left out: %s has one of this name"
                    _logger.warning(words, name, plugin, owner)
                else:
                    commands[name] = command
                    owners[name] = plugin
    return commands


def one_by_one(offered: typer.Typer) -> Iterator[typer.Typer]:
    """An app for each command, so that one which cannot be made does not take others with it."""
    for command in offered.registered_commands or ():
        app = typer.Typer(rich_markup_mode=None)
        app.registered_commands = [command]
        yield app
    for group in offered.registered_groups or ():
        app = typer.Typer(rich_markup_mode=None)
        app.registered_groups = [group]
        yield app


def _commands_of(app: typer.Typer, plugin: Plugin) -> dict[str, Any]:
    try:
        return dict(typer.main.get_group(app).commands)
    except Exception as error:  # whatever typer makes of a plugin's function
        name = name_of(app)
        _logger.warning("the command %r of %s is left out: %s", name, plugin, error)
        return {}


def name_of(app: typer.Typer) -> str:
    """The name of the one command of an app, whether or not it can be made."""
    callbacks = [command.callback for command in app.registered_commands]
    names = [command.name for command in app.registered_commands]
    names += [group.name for group in app.registered_groups]
    return str(names[0] or getattr(next(iter(callbacks), None), "__name__", "?"))
