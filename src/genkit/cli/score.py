"""`genkit score`: how probable a model finds a text."""

from __future__ import annotations

from typing import Annotated

import typer

from genkit.cli import options
from genkit.cli.output import print_json, print_table, remark
from genkit.cli.pipelines import build, read_recipe
from genkit.cli.settings import prints_aside
from genkit.cli.text_input import read_text, unescape

_EPILOG = """
\b
Examples:
  genkit score "The capital of France is Paris."
  genkit score --json -r recipe.yaml - < text.txt
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Log-probability of a text, token by token.")(score)


def score(
    ctx: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The text; `-`, or nothing: standard input."),
    ] = None,
    recipe: options.Recipe = options.DEFAULT_RECIPE,
    overrides: options.Overrides = None,
    escapes: options.Escapes = False,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Score a text: its log-probability by the chain rule, token by token.

    The text is scored as it is, whatever the recipe's context, with the begin token if the model's
    tokenizer adds one. Nothing stands before the first token, so it has no log-probability, and sum
    and mean run over the others. Perplexity is exp of minus the mean.
    """
    given = read_text("the text", text)
    if escapes:
        given = unescape(given)
    chosen = read_recipe(ctx, recipe, overrides)
    pipeline = build(ctx, chosen)
    from genkit.inspect.score import score as score_text

    with prints_aside():
        scored = score_text(pipeline.model, given, pipeline.tokenizer)
    if json:
        print_json(scored.to_dict())
        return
    print_table(
        ["token", "id", "logprob"],
        [[repr(t.text)[1:-1], str(t.token_id), _number(t.logprob)] for t in scored.tokens],
    )
    typer.echo()
    typer.echo(f"logprob     {scored.logprob:.4f}")
    typer.echo(f"perplexity  {_number(scored.perplexity)}")
    typer.echo(f"tokens      {scored.num_tokens}")
    if scored.num_tokens == 1:
        remark("A text of one token has nothing to score: no token stands before another.")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
