"""What is registered: parts by kind and name, named models, named recipes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from genkit.errors import FAILURES, GenkitError, PluginError, UnknownNameError
from genkit.plugins.hookspecs import PART_HOOKS
from genkit.plugins.lazy_part import Lazy
from genkit.plugins.plugin import Plugin, one_line

if TYPE_CHECKING:
    from genkit.backends.base import ModelSource
    from genkit.components.base import Component

KINDS = (*PART_HOOKS, "model", "recipe")


@dataclass(frozen=True)
class Entry:
    """A name, and the plugin that brought it."""

    kind: str
    name: str
    plugin: Plugin


@dataclass(frozen=True)
class ModelEntry(Entry):
    """A named model, and where it is."""

    source: ModelSource


@dataclass(frozen=True)
class RecipeEntry(Entry):
    """A named recipe, and its file."""

    path: Path


@dataclass(frozen=True)
class PartEntry(Entry):
    """A registered part. Its class is imported when it is first asked for."""

    target: Lazy | type[Component]

    @cached_property
    def summary(self) -> str:
        """One line about it, without importing anything where the plugin has given one."""
        given = self.target.summary if isinstance(self.target, Lazy) else ""
        return given or self.part_class.summary()

    @cached_property
    def part_class(self) -> type[Component]:
        """The class.

        Raises:
            PluginError: the class cannot be imported, or is not what it was announced as.
        """
        part_class = self.target
        if isinstance(part_class, Lazy):
            part_class = self._import(part_class)
            if part_class.type_name() != self.name:
                found = f"the `type` of {part_class.__name__} is {part_class.type_name()!r}"
                raise self._unusable(f"{found}; it has to be the name that is registered")
        if self.plugin.source != "built-in":
            part_class.plugin = self.plugin.name
        return part_class

    def _import(self, target: Lazy) -> type[Component]:
        try:
            return check_part_class(self.kind, target.load())
        except PluginError as error:
            raise self._unusable(str(error)) from error
        except GenkitError:
            raise  # a missing package: the message says what to install
        except FAILURES as error:
            raise self._unusable(one_line(error)) from error

    def _unusable(self, cause: str) -> PluginError:
        what = f"{label(self.kind)} {self.name!r}"
        return PluginError(f"{self.plugin}: its {what} cannot be used: {cause}")


class Registry:
    """Everything that loaded plugins have registered.

    Attributes:
        absent: plugins that are not loaded; a name that is not found may be one of theirs.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
        self._contested: dict[tuple[str, str], Plugin] = {}
        self.absent: list[Plugin] = []

    def add(self, entries: Sequence[Entry]) -> list[PluginError]:
        """Register all of these, or none.

        Of two installed plugins that register one name, neither has asked for the other, and which
        comes first is chance: both keep all else, and the name is an error when it is used.

        Returns:
            What is wrong with such names.

        Raises:
            PluginError: a name is taken otherwise; the message names both plugins.
        """
        new: dict[tuple[str, str], Entry] = {}
        for entry in entries:
            place = entry.kind, entry.name
            earlier = self._entries[entry.kind].get(entry.name) or new.get(place)
            if earlier is None:
                new[place] = entry
            elif {earlier.plugin.source, entry.plugin.source} != {"distribution"} or (
                earlier.plugin is entry.plugin
            ):
                raise self._clash(earlier, entry)
        clashes = []
        for entry in entries:
            if new.get((entry.kind, entry.name)) is entry:
                self._entries[entry.kind][entry.name] = entry
            else:
                self._contested[entry.kind, entry.name] = entry.plugin
                clashes.append(self._clash(self._entries[entry.kind][entry.name], entry))
        return clashes

    def discard(self, plugin: Plugin) -> None:
        """Forget everything that a plugin has registered."""
        for kind, entries in self._entries.items():
            kept = {name: entry for name, entry in entries.items() if entry.plugin is not plugin}
            self._entries[kind] = kept
        rivals = self._contested.items()
        self._contested = {name: rival for name, rival in rivals if rival is not plugin}

    def names(self, kind: str) -> list[str]:
        """The names of one kind, sorted; nothing is imported.

        Raises:
            UnknownNameError: there is no such kind.
        """
        return sorted(self._of(kind))

    def parts(self, kind: str | None = None) -> list[PartEntry]:
        """The parts of one kind, or of all kinds; nothing is imported."""
        kinds = PART_HOOKS if kind is None else (kind,)
        entries = [self._of(each)[name] for each in kinds for name in self.names(each)]
        return [entry for entry in entries if isinstance(entry, PartEntry)]

    def models(self) -> dict[str, ModelSource]:
        """The named models, and where each of them is; without those that two plugins claim."""
        entries = self._uncontested("model")
        return {entry.name: entry.source for entry in entries if isinstance(entry, ModelEntry)}

    def recipes(self) -> dict[str, Path]:
        """The named recipes, and the file of each; without those that two plugins claim."""
        entries = self._uncontested("recipe")
        return {entry.name: entry.path for entry in entries if isinstance(entry, RecipeEntry)}

    def entry(self, kind: str, name: str) -> Entry:
        """What is registered under a name.

        Raises:
            UnknownNameError: nothing is; names the nearest, and plugins that could not be loaded.
            PluginError: two plugins claim the name.
        """
        entry = self._of(kind).get(name)
        if entry is None:
            hint = ". ".join(self.hints(kind, name))
            raise UnknownNameError(label(kind), name, self.names(kind), hint)
        rival = self._contested.get((kind, name))
        if rival is not None:
            raise PluginError(
                f"{label(kind)} {name!r} is claimed by {entry.plugin} and by {rival}; disable one: "
                f"GENKIT_DISABLE_PLUGINS={rival.name}"
            )
        return entry

    def recipe_path(self, name: str) -> Path:
        """The file of a named recipe.

        Raises:
            UnknownNameError, PluginError: as `entry`.
        """
        return cast(RecipeEntry, self.entry("recipe", name)).path

    def part_class(self, kind: str, name: str) -> type[Component]:
        """The class of a part, imported if it has not been yet.

        Raises:
            UnknownNameError, PluginError: as `entry`, and if the class cannot be imported.
        """
        return cast(PartEntry, self.entry(kind, name)).part_class

    def hints(self, kind: str, name: str) -> list[str]:
        """What may explain that nothing of this kind is found under a name, a sentence each."""
        others = [other for other in KINDS if other != kind and name in self._entries[other]]
        hints = [f"{name!r} is the name of a {label(other)}" for other in others]
        for plugin in self.absent:
            why = plugin.cause or "disabled by GENKIT_DISABLE_PLUGINS"
            hints.append(f"{plugin}, which may have it, is not loaded: {why}")
        return hints

    def _uncontested(self, kind: str) -> list[Entry]:
        names = [name for name in self.names(kind) if (kind, name) not in self._contested]
        return [self._of(kind)[name] for name in names]

    def _of(self, kind: str) -> dict[str, Entry]:
        if kind not in self._entries:
            raise UnknownNameError("kind", kind, self._entries)
        return self._entries[kind]

    def _clash(self, earlier: Entry, entry: Entry) -> PluginError:
        what = f"{label(entry.kind)} {entry.name!r}"
        if earlier.plugin is entry.plugin:
            return PluginError(f"it registers the {what} twice")
        return PluginError(f"{what} is registered by {earlier.plugin} and by {entry.plugin}")


def check_part_class(kind: str, item: Any) -> type[Component]:
    """The class itself, if it is a part of this kind.

    Raises:
        PluginError: it is something else, or has no name.
    """
    if not isinstance(item, type):
        raise PluginError(f"expected a class or lazy(...), found {item!r}")
    from genkit.components.base import Component

    if not issubclass(item, Component):
        raise PluginError(f"{item.__qualname__} does not derive from genkit's Component")
    found = getattr(item, "kind", "component without a kind")
    if found != kind:
        raise PluginError(f"{item.__qualname__} is a {label(found)}, not a {label(kind)}")
    name = item.model_fields["type"].default
    if not (isinstance(name, str) and re.fullmatch(r"\S+", name)):
        raise PluginError(
            f"{item.__qualname__} has no name; give it one: type: Literal['name'] = 'name'"
        )
    return item


def label(kind: str) -> str:
    """A kind in words."""
    return kind.replace("_", " ")
