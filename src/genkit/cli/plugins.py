"""`genkit plugins`: what is loaded, and from where.

`new` and `check` have files of their own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from genkit.cli import options, plugin_check, plugin_new
from genkit.cli.output import print_json, print_table
from genkit.cli.settings import prints_aside, settings_of
from genkit.plugins.hookspecs import OBSERVATION_HOOKS

if TYPE_CHECKING:
    from genkit.plugins.plugin import Plugin

app = typer.Typer(
    name="plugins",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List plugins, begin a new one, and check one.",
    epilog="""\b
Examples:
  genkit plugins new my_idea --kind sampler
  genkit plugins check lm-genkit-my-idea/
""",
)

_EPILOG = """
\b
Examples:
  genkit plugins list
  GENKIT_DISABLE_PLUGINS=smollm2 genkit plugins list
"""


def add_to(parent: typer.Typer) -> None:
    """Register the commands."""
    plugin_new.add_to(app)
    plugin_check.add_to(app)
    parent.add_typer(app)


@app.callback()
def _plugins() -> None:
    """List plugins, begin a new one, and check one."""


@app.command("list", epilog=_EPILOG)
def list_plugins(
    ctx: typer.Context,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """List every plugin: where it comes from, what it brings, and why it is left out if it is.

    The variable GENKIT_DISABLE_PLUGINS names plugins that are not loaded, separated by commas.
    """
    # No `Kit`: it brings what reads recipes, and nobody waits for a list.
    from genkit.plugins.manager import PluginManager

    with prints_aside():
        plugins = [describe(each) for each in PluginManager(settings_of(ctx).plugins)]
    if json:
        print_json(plugins)
    else:
        print_plugins(plugins)


def describe(plugin: Plugin) -> dict[str, Any]:
    """A plugin as plain data."""
    return {
        "name": plugin.name,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "source": plugin.source,
        "location": plugin.location,
        "state": plugin.state,
        "cause": plugin.cause or None,
        "parts": [{"kind": kind, "name": name} for kind, name in plugin.parts],
        "watches_runs": any(map(plugin.implements, OBSERVATION_HOOKS)),
        "adds_commands": plugin.implements("genkit_register_commands"),
        "load_seconds": plugin.seconds,
    }


def print_plugins(plugins: list[dict[str, Any]]) -> None:
    """The table of plugins, and below it what is wrong with any."""
    rows = [
        [p["name"], p["state"], _origin(p), f"{1000 * p['load_seconds']:.0f} ms", _parts(p)]
        for p in plugins
    ]
    print_table(["plugin", "state", "from", "load time", "brings"], rows)
    for plugin in plugins:
        if plugin["cause"]:
            typer.echo(f"\n{plugin['name']}: {plugin['cause']}")


def _origin(plugin: dict[str, Any]) -> str:
    if plugin["distribution"] is not None:
        return f"{plugin['distribution']} {plugin['version']}"
    return "genkit" if plugin["source"] == "built-in" else str(plugin["location"])


def _parts(plugin: dict[str, Any]) -> str:
    """What it brings, counted where it is much."""
    parts = plugin["parts"]
    if len(parts) <= 4:
        words = [f"{p['kind'].replace('_', ' ')} {p['name']}" for p in parts]
    else:
        counts = Counter(p["kind"] for p in parts)
        words = [_count(kind, count) for kind, count in counts.items()]
    others = {"watches_runs": "an observer", "adds_commands": "commands"}
    words += [word for key, word in others.items() if plugin[key]]
    return ", ".join(words) or "-"


def _count(kind: str, count: int) -> str:
    words = kind.replace("_", " ")
    if count > 1:
        words = (
            words.removesuffix("criterion") + "criteria" if "criterion" in words else f"{words}s"
        )
    return f"{count} {words}"
