"""What is checked of a model that a plugin names, without loading it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from genkit.backends.sources import locate
from genkit.errors import FAILURES, GenkitError
from genkit.kit import Kit
from genkit.plugins.registry import ModelEntry
from genkit.testing.verification.law_row import LawRow

__all__ = ["rows_of_model"]


def rows_of_model(kit: Kit, name: str) -> Iterator[LawRow]:
    """A row for each law of a named model. Nothing of it is read, downloaded or searched for.

    Args:
        kit: one that has loaded the plugin.
        name: of the model.
    """
    row = LawRow(
        "names a place", "it is a folder or a file that is there, or a hub id", True, 1,
        part=f"model {name}",
    )  # fmt: skip
    try:
        source = cast(ModelEntry, kit.registry.entry("model", name)).source
        options = {**source} if isinstance(source, Mapping) else {"model": source}
        if callable(options.pop("model")):
            words = "not tried: a function finds it when it is loaded"
            row = replace(row, holds=None, cases=0, detail=words)
        else:
            locate(name, {name: source})
    except GenkitError as error:
        yield replace(row, holds=False, detail=str(error))
        return
    yield row
    if options:
        refusals = list(_refusals(kit, options))
        held = len(refusals) < len(kit.parts("backend"))
        statement = "there is a backend that takes its options"
        detail = "" if held else "; ".join(refusals)
        yield LawRow("has options of a backend", statement, held, 1, detail, part=row.part)


def _refusals(kit: Kit, options: Mapping[str, Any]) -> Iterator[str]:
    """What each backend that does not take the options says to them."""
    for entry in kit.parts("backend"):
        try:
            entry.part_class(**{"model": "any", **options})
        except GenkitError as error:
            yield str(error)
        except FAILURES as error:
            yield f"backend {entry.name!r} raised {type(error).__name__}: {error}"
