"""What holds for a whole call of the command line, whichever command it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar, cast

import typer

if TYPE_CHECKING:
    from genkit.kit import Kit

T = TypeVar("T")


@dataclass
class Settings:
    """The options that every command takes, wherever on the line they stand.

    Attributes:
        debug: show the traceback of an error.
        plugins: the files given with `--plugin`.
    """

    debug: bool = False
    plugins: list[Path] = field(default_factory=list)
    _kit: Kit | None = field(default=None, repr=False)

    def kit(self) -> Kit:
        """The kit of this call, made when it is first asked for.

        Raises:
            PluginError: a file given with `--plugin` cannot be loaded.
        """
        if self._kit is None:
            from genkit.kit import Kit

            with prints_aside():
                self._kit = Kit(self.plugins)
        return self._kit


def prints_aside() -> redirect_stdout[TextIO]:
    """What code of plugins prints goes beside the result of the command."""
    return redirect_stdout(sys.stderr)


def each_aside(chunks: Iterable[T]) -> Iterator[T]:
    """The same chunks; what parts print while one is made goes beside them."""
    iterator = iter(chunks)
    while True:
        with prints_aside():
            chunk = next(iterator, None)
        if chunk is None:
            return
        yield chunk


def settings_of(ctx: typer.Context) -> Settings:
    """The settings of the call that a command belongs to."""
    return cast(Settings, ctx.find_root().obj)
