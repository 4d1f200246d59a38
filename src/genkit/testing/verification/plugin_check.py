"""All laws on each part that a plugin brings: what `genkit plugins check` reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from genkit.core.contracts import name_of
from genkit.errors import FAILURES, GenkitError, OptionError, UnknownNameError
from genkit.kit import Kit
from genkit.plugins.plugin import Plugin, one_line
from genkit.plugins.registry import PartEntry, label
from genkit.testing.checks.drawn import need_hypothesis
from genkit.testing.verification.law_row import LawRow
from genkit.testing.verification.model_rows import rows_of_model
from genkit.testing.verification.part_check import PartCheck

__all__ = ["NUM_CASES", "PluginCheck", "check_plugin"]

NUM_CASES = 25

Report = Callable[[str], object]
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class PluginCheck:
    """What was found out about the parts of a plugin.

    Attributes:
        plugin: whose.
        laws: one row for each law of each part; its `part` names the part and its options.
    """

    plugin: Plugin
    laws: tuple[LawRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every part could be tried, and no law is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[LawRow, ...]:
        """The laws that do not hold."""
        return tuple(row for row in self.laws if row.holds is False)


def check_plugin(
    kit: Kit,
    plugin: Plugin,
    options: Options | None = None,
    *,
    num_cases: int = NUM_CASES,
    progress: Report | None = None,
) -> PluginCheck:
    """Try every law on each part of a plugin, on its observer, its models and its recipes.

    A part is made with the options given, and otherwise with its defaults; an option without a
    default gets the first of its `examples`, as in ``Field(examples=[0.5])``.

    Args:
        kit: one that has loaded the plugin.
        plugin: which of its plugins.
        options: those of parts, by their names.
        num_cases: how many runs are drawn for each law.
        progress: called with one line for a person before each part.

    Raises:
        UnknownNameError: `options` names a part that the plugin does not bring.
        MissingPackageError: Hypothesis is not installed.
    """
    need_hypothesis(plugin.name)
    entries = [entry for entry in kit.parts() if entry.plugin is plugin]
    options = options or {}
    names = {entry.name for entry in entries}
    for name in options:
        if name not in names:
            raise UnknownNameError(f"part of the plugin {plugin.name!r}", name, names)
    report = progress or _say_nothing
    rows: list[LawRow] = []
    for entry in entries:
        report(f"laws of {label(entry.kind)} {entry.name}")
        rows += _rows_of_part(kit, entry, options.get(entry.name, {}), num_cases)
    rows += _rows_of_observer(kit, plugin)
    for kind, name in plugin.parts:
        if kind == "model":
            rows += rows_of_model(kit, name)
        elif kind == "recipe":
            rows.append(_row_of_recipe(kit, name))
    return PluginCheck(plugin, tuple(rows))


def _rows_of_part(
    kit: Kit, entry: PartEntry, given: Mapping[str, Any], num_cases: int
) -> list[LawRow]:
    place = f"{label(entry.kind)} {entry.name}"
    try:
        options = {**_examples(entry.part_class), **given}
        part = entry.part_class(**options)
        if options:
            place += f" ({', '.join(f'{name}: {value!r}' for name, value in options.items())})"
        return [*PartCheck(place, num_cases).rows(part, kit.load), *_descriptions(entry, place)]
    except OptionError as error:
        return [_unusable(place, f"{error}; {_advice(entry, error)}")]
    except FAILURES as error:  # a class of a plugin may raise whatever it likes
        return [_unusable(place, _words(error))]


def _descriptions(entry: PartEntry, place: str) -> Iterator[LawRow]:
    """A row that breaks nothing, where lists and the part's own page would say different things."""
    said = entry.part_class.summary()
    if entry.summary != said:
        statement = "the summary that `lazy` gives is the first line of the docstring"
        detail = f"`lazy` says {entry.summary!r}, and the docstring {said!r}"
        yield LawRow("is described alike", statement, None, 0, detail, part=place)


def _examples(part_class: Any) -> dict[str, Any]:
    """The first example of each option that has no default."""
    return {
        name: field.examples[0]
        for name, field in part_class.model_fields.items()
        if field.is_required() and field.examples
    }


def _advice(entry: PartEntry, error: OptionError) -> str:
    """How to give an option."""
    path = ".".join([entry.name, *map(str, error.problems[0].path[:1])])
    return f"give it with --set {path}=VALUE, or with Field(examples=[VALUE]) in the class"


def _rows_of_observer(kit: Kit, plugin: Plugin) -> Iterator[LawRow]:
    for observer in kit.plugins.observers():
        if name_of(observer) == plugin.name:
            # As one that was asked for by name: what it raises is not to be hidden here.
            asked_for = SimpleNamespace(**{**vars(observer), "installed": False})
            yield from PartCheck("observer", 1).rows_of_observer(asked_for)


def _row_of_recipe(kit: Kit, name: str) -> LawRow:
    statement = "the recipe can be read, and every part in it is known"
    try:
        kit.recipe(name)
        return LawRow("can be read", statement, True, 1, part=f"recipe {name}")
    except GenkitError as error:
        return LawRow("can be read", statement, False, 1, str(error), part=f"recipe {name}")


def _unusable(place: str, detail: str) -> LawRow:
    statement = "its class can be imported, an object made of it, and the laws be tried"
    return LawRow("can be used", statement, False, 1, detail, part=place)


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, GenkitError) else one_line(error)


def _say_nothing(line: str) -> None:
    """Nobody listens."""
