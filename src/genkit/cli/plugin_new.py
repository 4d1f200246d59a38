"""`genkit plugins new`: a package to begin with."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from genkit.cli import options
from genkit.cli.settings import settings_of
from genkit.errors import InputError
from genkit.plugins.registry import label

if TYPE_CHECKING:
    from genkit.kit import Kit
    from genkit.scaffold import Package

_EXAMPLES = """\b
Examples:
  genkit plugins new calm --kind processor
  genkit plugins new lucky --kind sampler --into packages --author "Ada Lovelace"
"""

_Kind = Literal[
    "processor",
    "sampler",
    "stop_criterion",
    "cache_manager",
    "backend",
    "decoder",
    "context",
    "observer",
]


def add_to(parent: typer.Typer) -> None:
    """Register the command."""
    parent.command("new", epilog=_EXAMPLES)(new)


def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the plugin and its part, such as calm.")],
    kind: Annotated[_Kind, typer.Option(help="What the plugin brings.")],
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the folder of the package is made.")
    ] = Path(),
    author: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For the licence and the metadata; by default the name that git knows.",
        ),
    ] = None,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Write a new plugin: an installable package with one part that works.

    The folder lm-genkit-NAME has the part, tests of its laws and of a value, a recipe, a README, an
    MIT licence and the file that makes GitHub run the tests. Put your idea in place of the one that
    is there.
    """
    from genkit.scaffold import Package

    part_kind = "logits_processor" if kind == "processor" else kind
    package = Package(name, part_kind, _author() if author is None else author)
    _refuse_taken(package, settings_of(ctx).kit())
    folder = package.write(into)
    typer.echo(_next_steps(package, folder))


def _refuse_taken(package: Package, kit: Kit) -> None:
    """Refuse a name that a plugin has, or a part of this kind."""
    for plugin in kit.plugins:
        if package.name == plugin.name or package.distribution == plugin.distribution:
            raise InputError(f"there is a {plugin} already; choose another name")
    for entry in kit.parts():
        if (entry.kind, entry.name) == (package.kind, package.name):
            raise InputError(
                f"there is a {label(package.kind)} {package.name!r} already, of {entry.plugin}; "
                "choose another name"
            )


def _author() -> str:
    """The name that git knows; empty if it knows none."""
    try:
        asked = subprocess.run(
            ["git", "config", "user.name"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError:  # there is no git
        return ""
    return " ".join(asked.stdout.split())


def _next_steps(package: Package, folder: Path) -> str:
    project, recipe = shlex.quote(f"{folder}[test]"), shlex.quote(str(folder / "recipe.yaml"))
    return (
        f"{folder / package.part_file} is where your idea goes. To try what is there:\n"
        f"  pip install --editable {project} && pytest {shlex.quote(str(folder))}\n"
        f"  genkit plugins check {package.name}; genkit generate Hello -r {recipe}"
    )
