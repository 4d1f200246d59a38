"""What a person sees: JSON and text on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import typer


def print_json(data: Any) -> None:
    """The one JSON document of a command."""
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    typer.echo(json.dumps(data, indent=2, ensure_ascii=not unicode, allow_nan=False))


def write(text: str) -> None:
    """A piece of text, at once."""
    if sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sits before it. A process may be started without one of its streams."""
    return stream is not None and stream.isatty()


def remark(text: str) -> None:
    """A line beside the result, dim on a terminal."""
    write("")
    typer.secho(text, err=True, dim=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: on a terminal as wide as that is, elsewhere without a broken line, for `grep`."""
    if not is_terminal(sys.stdout):
        typer.echo("\n".join(_lines(columns, rows)))  # without rich, which takes a while to import
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    gap = " " * 3
    for i, row in enumerate([columns, *rows]):
        yield gap.join(map(str.ljust, row, widths)).rstrip()
        if i == 0:
            yield "─" * (sum(widths) + len(gap) * (len(widths) - 1))


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Gives what long work reports to, one line at a time.

    A terminal shows the line that holds, with something that turns; `first` is shown until the work
    reports. Elsewhere every line is printed once, `first` is not.
    """
    if not is_terminal(sys.stderr):
        yield lambda line: typer.echo(line, err=True)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(first)) as status:
        yield lambda line: status.update(escape(line))
