"""`genkit recipes import`: the settings of another engine as a recipe."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genkit.cli import options
from genkit.cli.output import print_json, remark
from genkit.cli.settings import settings_of
from genkit.errors import InputError

if TYPE_CHECKING:
    from genkit.recipes.importers import Imported, Unsaid

_EXAMPLES = """\b
Examples:
  genkit recipes import --from hf generation_config.json
  genkit recipes import --from vllm temperature=0.7 top_p=0.9 max_tokens=64
  genkit recipes import --from mlx --temp 0.7 --top-p 0.9 --max-tokens 64
  genkit recipes import --from llama.cpp -- -m model.gguf --temp 0.7 --min-p 0.1 -n 128
"""

_LONGEST = 100
"""The most letters of a value that is shown; `--json` has all of them."""


def add_to(parent: typer.Typer) -> None:
    """Register the command."""
    # Flags of other programs need no `--` before them, unless they are our own as well.
    passed_on = {"ignore_unknown_options": True}
    parent.command("import", epilog=_EXAMPLES, context_settings=passed_on)(_import)


def _import(
    ctx: typer.Context,
    engine: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ENGINE",
            help="hf, vllm, sglang, llama.cpp, llama-cpp-python, mlx, onnxruntime-genai or openai.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|KEY=VALUE]...",
            help="A JSON file (generation_config.json, genai_config.json, the body of a request), "
            "settings, or the flags of llama.cpp and mlx_lm.generate; the later wins.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model; by default the one that is named."),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Turn the settings of another engine into a recipe.

    The recipe has that engine's order, meaning and defaults, and says of every value where it comes
    from. What a recipe cannot say is listed on standard error, and in comments at its top. No model
    is loaded.
    """
    from genkit.recipes.importers import FLAGS, import_recipe

    words = words or []
    for word in words:
        if word.startswith("-") and engine not in FLAGS:
            raise InputError(f"{word!r}: {engine} takes files and KEY=VALUE, no flags")
    registry = settings_of(ctx).kit().registry
    imported = import_recipe(engine, words, model=model, registry=registry)
    if json:
        print_json(_document(imported))
        return
    for unsaid in imported.unsaid:
        remark(f"not in the recipe: {_line(unsaid)}")
    typer.echo(_text(imported))


def _document(imported: Imported) -> dict[str, Any]:
    from genkit.cli.recipe_text import recipe_document
    from genkit.recipes.importers import finite

    return {
        "engine": imported.engine,
        **recipe_document(imported.recipe),
        "unsaid": [finite(unsaid._asdict()) for unsaid in imported.unsaid],
    }


def _text(imported: Imported) -> str:
    """The recipe, below what it does not say."""
    from genkit.cli.recipe_text import recipe_text

    lines = [f"# Settings of {imported.engine}, in its order and with its defaults."]
    if imported.unsaid:
        lines += ["# What this recipe does not say:"]
        lines += [f"#   {_line(unsaid)}" for unsaid in imported.unsaid]
    return "\n".join([*lines, recipe_text(imported.recipe)])


def _line(unsaid: Unsaid) -> str:
    from genkit.cli.recipe_text import one_line
    from genkit.recipes.importers import shown

    value = shorten(shown(unsaid.value), _LONGEST, placeholder=" ...")
    return one_line(f"{unsaid.setting} = {value}: {unsaid.reason}")
