"""`genkit verify`: whether the laws hold for a recipe, on its own model and parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from genkit.cli import errors, options
from genkit.cli.output import print_json, print_table, progress, remark
from genkit.cli.pipelines import build, read_recipe
from genkit.cli.settings import prints_aside

if TYPE_CHECKING:
    from genkit.testing.verification.law_row import LawRow
    from genkit.testing.verification.loss import Loss
    from genkit.testing.verification.verify import Verification

_EPILOG = """
\b
Examples:
  genkit verify
  genkit verify recipe.yaml --set 'cache={type: prefix}'
  genkit verify recipe.yaml --cases 10 --json
  genkit verify onnx.yaml --against smollm2-chat
"""

_LONG_PROMPT = re.compile(r"((?:\d+, ){7}\d+)(?:, \d+)+")
"""More than eight ids in a row."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Check the laws on a recipe's own model and parts.")(
        verify
    )


def verify(
    ctx: typer.Context,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe file, or a named recipe.")
    ] = options.DEFAULT_RECIPE,
    overrides: options.Overrides = None,
    cases: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many batches each law is tried on; by default a few."
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Chooses the texts, and whatever else laws choose."),
    ] = 0,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Also compare with the model of this recipe: the same one, on another backend.",
        ),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Check the laws on a recipe's own model and parts.

    With the cache the same as without; a row of a batch the same as alone, with any padding, in any
    order; the same seed, the same tokens; a stream the same as the whole text; and what processors,
    samplers and stop criteria promise. A law compares two ways to the same tokens: tokens must be
    the same, and logits up to rounding. For a lossy cache it is measured what it loses.

    The exit status is 1 if a law does not hold. A model of 135 million parameters takes a minute or
    two on two CPU cores; `--cases 1` takes less.
    """
    pipeline = build(ctx, read_recipe(ctx, recipe, overrides))
    other = None if against is None else build(ctx, read_recipe(ctx, against, None)).model
    with progress("Loading the laws ...") as report, prints_aside():
        from genkit.testing.verification.verify import NUM_CASES
        from genkit.testing.verification.verify import verify as try_laws

        num_cases = NUM_CASES if cases is None else cases
        found = try_laws(pipeline, num_cases=num_cases, seed=seed, against=other, progress=report)
    if json:
        print_json(found.to_dict())
    else:
        _print(found)
        for note in found.notes:
            remark(f"note: {note}")
    if not found.holds:
        raise typer.Exit(errors.FAILED)


def _print(found: Verification) -> None:
    columns = ["law", "holds", "cases", "worst logit error", "smallest margin", "detail"]
    print_table(columns, list(_lines(found.laws)))
    for row in found.broken:
        typer.echo()
        typer.echo(f"BROKEN: {_name(row)}\n  {row.statement}\n  {_shortened(row.detail)}")
    if found.loss is not None:
        typer.echo()
        _print_loss(found.loss)
    typer.echo()
    counts = Counter(row.holds for row in found.laws)
    typer.echo(
        f"laws: {counts[True]} hold, {counts[False]} are broken, {counts[None]} do not apply or "
        "are only measured"
    )


def _lines(laws: Iterable[LawRow]) -> Iterable[list[str]]:
    """A line for each law of the pipeline, and one for all laws of each part."""
    for part, rows in groupby(laws, lambda row: row.part):
        if part is None:
            yield from map(_line, rows)
        else:
            yield _line_of_part(part, list(rows))


def _line(row: LawRow) -> list[str]:
    numbers = [_number(row.worst_logit_error), _number(row.smallest_margin)]
    detail = "see below" if row.holds is False else row.detail
    return [row.name, _verdict(row.holds), str(row.cases), *numbers, detail]


def _line_of_part(part: str, rows: list[LawRow]) -> list[str]:
    broken = [row.name for row in rows if row.holds is False]
    holds = None if all(row.holds is None for row in rows) else not broken
    detail = rows[0].detail if holds is None else f"{len(rows)} laws"
    if broken:
        detail += f", {len(broken)} broken: see below"
    return [part, _verdict(holds), str(rows[0].cases), "-", "-", detail]


def _print_loss(loss: Loss) -> None:
    several = f"{len(loss.divergences)} next tokens"
    counts = ", ".join("never" if n is None else str(n) for n in loss.first_differences)
    median = loss.median_first_difference
    print_table(
        ["loss of the cache, against none", ""],
        [
            [f"KL of {several}, mean", f"{_number(loss.kl_mean)} nats"],
            [f"KL of {several}, max", f"{_number(loss.kl_max)} nats"],
            ["tokens until the first difference", counts],
            ["  median", "never" if median is None else f"{median:g}"],
            ["longest text", f"{loss.longest} tokens"],
            ["memory between steps", _bytes(loss.resident_bytes)],
            ["memory at its peak", _bytes(loss.peak_bytes)],
            ["memory of the model's own cache", _bytes(loss.dynamic_bytes)],
        ],
    )


def _shortened(detail: str) -> str:
    """The same words, with the first ids of a long prompt and how many it has.

    All of them are in the JSON.
    """
    return _LONG_PROMPT.sub(lambda ids: f"{ids[1]}, ... {ids[0].count(',') + 1} ids", detail)


def _name(row: LawRow) -> str:
    return row.name if row.part is None else f"{row.name}, {row.part}"


def _verdict(holds: bool | None) -> str:
    return {True: "yes", False: "NO", None: "-"}[holds]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _bytes(count: int | None) -> str:
    return "-" if count is None else f"{count:,} bytes"
