"""`genkit export`: writes a model as an ONNX graph, and checks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genkit.cli import options
from genkit.cli.output import print_json, progress
from genkit.cli.settings import settings_of
from genkit.errors import UnsupportedError

if TYPE_CHECKING:
    from genkit.exporters.exporting import Export

_EPILOG = """
\b
Examples:
  genkit export smollm2 smollm2-int4 --precision int4
  genkit export path/to/model out --exporter transformers --json
  genkit generate "Hello" --set "backend={type: onnxruntime, model: smollm2-int4}"
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Write a model as an ONNX graph, and check it.")(export)


def export(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A registered name, a folder, a .gguf file or a hub id."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to be made.")],
    exporter: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What writes the graph; `genkit parts exporters` lists them. By default genai if "
            "onnxruntime-genai is installed and the precision is not fp16, otherwise transformers "
            "(optimum, where transformers is 4.x).",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(metavar="NAME", help="Of the weights: fp32, fp16, int8 or int4."),
    ] = "fp32",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set an option of the exporter; may be given several times.",
        ),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Write a model as an ONNX graph into a new folder, and check it.

    The folder is complete: `backend: {type: onnxruntime, model: OUT}`. Before it appears, the graph
    is run beside the model, with several shapes of input. A float32 graph whose logits differ is
    refused; for other precisions the worst logit error is a number to look at. It is printed, and
    stored in OUT/genkit_export.json. Whatever fails leaves nothing behind.
    """
    kit = settings_of(ctx).kit()
    with progress("Exporting ...") as report:
        from genkit.exporters.packages import usual_exporter

        name = exporter or usual_exporter(precision)
        part: Any = kit.registry.part_class("exporter", name)
        spec = part(**_options(precision, settings or []))
        try:
            done = kit.export(spec, model, out, progress=report)
        except UnsupportedError as error:
            if exporter is None:
                error.add_note("another exporter may do better: genkit parts exporters")
            raise
    if json:
        print_json(done.to_dict())
    else:
        _print(done)


def _options(precision: str, settings: list[str]) -> dict[str, Any]:
    from genkit.recipes.document import document_of
    from genkit.recipes.overrides import override

    options: dict[str, Any] = override(document_of({"precision": precision}), settings).data
    return options


def _print(done: Export) -> None:
    found = done.comparison
    typer.echo(f"path             {done.path}")
    typer.echo(f"exporter         {done.exporter}")
    typer.echo(f"precision        {done.precision}")
    typer.echo(
        f"max logit error  {found.max_logit_error:.3g} (the largest logit is "
        f"{found.largest_logit:.3g}; the most probable token is the same in {found.num_agreeing} "
        f"of {found.num_places} places)"
    )
