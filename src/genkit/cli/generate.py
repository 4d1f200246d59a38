"""`genkit generate`: one answer to one prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from genkit.cli import errors, options
from genkit.cli.output import is_terminal, print_json, remark, write
from genkit.cli.pipelines import build, read_recipe
from genkit.cli.settings import each_aside, prints_aside
from genkit.cli.text_input import check_text, read_text, unescape
from genkit.cli.watch import Watch, summary

if TYPE_CHECKING:
    from genkit.core.contracts import Model
    from genkit.text.transcript import Chunk

_EPILOG = """
\b
Examples:
  genkit generate "What is the capital of France?"
  genkit generate -r recipe.yaml --set sampler.type=greedy --max-new-tokens 32 "Once upon a time"
  git diff | genkit generate --system "Summarise this change in one sentence."
  genkit generate --escapes --stop "\\n\\n" "A haiku about rain:\\n"
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Generate one answer to a prompt.")(generate)


def generate(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The prompt; `-`, or nothing: standard input."),
    ] = None,
    recipe: options.Recipe = options.DEFAULT_RECIPE,
    overrides: options.Overrides = None,
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the prompt from a file.")
    ] = None,
    system: options.System = None,
    stop: options.Stop = None,
    seed: options.Seed = None,
    max_new_tokens: options.MaxNewTokens = None,
    num_samples: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many answers to the prompt.")
    ] = 1,
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Add log-probabilities of every token and of the N most probable ones to --json.",
        ),
    ] = None,
    escapes: options.Escapes = False,
    json: options.Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say how long it took and which seed was used.")
    ] = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Generate one answer and print it as it comes.

    A prompt from a file or a pipe is taken as it is; only the line break at its very end is left
    out. Ctrl-C ends the answer; what has been printed stays.
    """
    if logprobs is not None and not json:
        raise typer.BadParameter("log-probabilities are shown with --json", param_hint="--logprobs")
    read: Callable[[str], str] = unescape if escapes else str
    text = read(read_text("the prompt", prompt, prompt_file))
    system = None if system is None else read(check_text("--system", system))
    stops = [read(check_text("--stop", string)) for string in stop or ()]
    chosen = read_recipe(ctx, recipe, overrides, system=system, stop=stops)
    pipeline = build(ctx, chosen)
    watch = Watch()
    pipeline.observers = (*pipeline.observers, watch)
    with prints_aside():
        stream = pipeline.stream(
            text,
            seed=seed,
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
            logprobs=logprobs,
        )
    show: _Printer = _Json(watch, pipeline.model) if json else _Live(num_samples)
    try:
        with closing(stream):
            for chunk in each_aside(stream):
                show.chunk(chunk)
    except KeyboardInterrupt:
        if not show.within_line:  # a terminal has printed ^C
            typer.echo(err=True)
        raise typer.Exit(errors.INTERRUPTED) from None
    finally:
        show.end()
        if verbose or is_terminal(sys.stderr):
            for result in watch.results:
                remark(summary(result, watch if num_samples == 1 else None))


class _Json:
    """Prints everything at the end, also of a run that ended early."""

    within_line = False

    def __init__(self, watch: Watch, model: Model) -> None:
        self.watch = watch
        # ONNX Runtime's provider says more than the device: which of them has really started.
        self.runs_on = getattr(model, "provider", None) or str(model.device)

    def chunk(self, chunk: Chunk) -> None:
        """Nothing to show yet."""

    def end(self) -> None:
        """The one document. A run that never began has given nothing to print."""
        if self.watch.results:
            results = [result.to_dict() for result in self.watch.results]
            print_json(
                {
                    "results": results,
                    "timing": self.watch.to_dict(),
                    "runs_on": self.runs_on,
                    "settings": [each.to_dict() for each in self.watch.results[0].settings],
                }
            )


class _Live:
    """Prints text as it comes: of several samples the first, and those after it in their order."""

    def __init__(self, num_samples: int) -> None:
        self.waiting: dict[int, list[str]] = {row: [] for row in range(num_samples)}
        self.ended: set[int] = set()
        self.num_samples = num_samples
        self.within_line = False  # whether there is text without a line break after it

    def chunk(self, chunk: Chunk) -> None:
        """A piece of some sample."""
        self.waiting[chunk.row].append(chunk.text)
        if chunk.result is not None:
            self.ended.add(chunk.row)
        for row in self._turns():
            self._print(row)

    def _turns(self) -> Iterator[int]:
        """The rows that may print: the first that has not ended, and those ended before it."""
        for row in list(self.waiting):
            yield row
            if row not in self.ended:
                return
            self.end()
            del self.waiting[row]

    def _print(self, row: int) -> None:
        if not self.within_line and self.num_samples > 1:
            remark(f"sample {row + 1} of {self.num_samples}")
        self.within_line = True
        for text in self.waiting[row]:
            write(text)
        self.waiting[row].clear()

    def end(self) -> None:
        """The end of the line."""
        if self.within_line:
            write("\n")
        self.within_line = False


_Printer = _Json | _Live
