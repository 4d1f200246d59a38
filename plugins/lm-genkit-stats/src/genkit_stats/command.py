"""``genkit stats FILE``: a table of the runs in a file of statistics."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from genkit.errors import InputError
from genkit_stats.summary import figures, read

_EPILOG = """
\b
Example:
  GENKIT_STATS_FILE=stats.jsonl genkit generate "Once upon a time"
  genkit stats stats.jsonl
"""

_COLUMNS = {
    "rows": "rows",
    "tokens": "tokens",
    "mean_entropy": "mean entropy",
    "mean_raw_entropy": "raw",
    "mean_rank": "mean rank",
    "tokens_per_second": "tokens/s",
}

_WIDEST = 32
"""How much of the name of a run is shown; those that are written have 8 characters."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Sum up a file of statistics.")(stats)


def stats(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What GENKIT_STATS_FILE named.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print a line for each run in a file of statistics, and one for all of them.

    Entropies are in nats, of the distribution after the processors and (raw) before them. Rank 0 is
    the most probable token. The speed is that of the tokens after the first of each row.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        runs, num_left_out = read(lines)
    if not runs:
        raise InputError(
            f"{file} has no record of a run; runs write to the file that GENKIT_STATS_FILE names"
        )
    if num_left_out:
        typer.echo(f"{num_left_out} lines are no records and are left out", err=True)
    each = [(name, figures([sums])) for name, sums in runs.items()]
    whole = figures(runs.values())
    if json:
        listed = [{"run": name, **values} for name, values in each]
        typer.echo(dumps({"runs": listed, "all": whole}, indent=2))
        return
    rows = [[_shown(name), *_cells(values)] for name, values in [*each, ("all", whole)]]
    for line in _table([["run", *_COLUMNS.values()], *rows]):
        typer.echo(line)


def _shown(name: str) -> str:
    """A name as one word of a table, whoever wrote it: escaped, and cut where it is very long."""
    text = name.encode("unicode_escape").decode()
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _cells(values: dict[str, Any]) -> list[str]:
    found = (values[name] for name in _COLUMNS)
    return ["-" if x is None else f"{x:.2f}" if isinstance(x, float) else str(x) for x in found]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]
