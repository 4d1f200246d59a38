"""A recipe in the making: its parts, and who says each of their options."""

from __future__ import annotations

from typing import Any

from genkit.core.settings import KeyPath
from genkit.errors import OptionError
from genkit.plugins.registry import Registry
from genkit.recipes.document import Document, paths_in
from genkit.recipes.importers.given import Given, Said, Unsaid
from genkit.recipes.schema import LISTS, SECTIONS, VERSION


class Draft:
    """Collects the parts of a recipe in the order of an engine.

    An option is a value that was `Said`, or a plain one: what the engine means by the part. A part
    whose options are out of range is left out, and the settings that asked for it are listed.

    Attributes:
        data: the recipe so far.
        sources: who says the value at each path.
    """

    def __init__(self, given: Given, registry: Registry) -> None:
        self._given = given
        self._registry = registry
        self.data: dict[str, Any] = {"version": VERSION, **{name: [] for name in LISTS}}
        self.sources: dict[KeyPath, str] = {("version",): "written by recipes import"}
        # Empty lists are said too.
        self.sources |= dict.fromkeys([(name,) for name in LISTS], f"as in {given.engine}")

    def processor(self, type: str, /, because: Said | None = None, **options: Any) -> None:
        """Append a logits processor."""
        self._add("processors", type, because, options)

    def stop(self, type: str, /, because: Said | None = None, **options: Any) -> None:
        """Append a stop criterion."""
        self._add("stop_criteria", type, because, options)

    def sampler(self, type: str, /, because: Said, **options: Any) -> None:
        """Set the sampler."""
        self._add("sampler", type, because, options)

    def context(self, type: str, /, because: Said, **options: Any) -> None:
        """Set the context."""
        self._add("context", type, because, options)

    def cache(self, type: str, /, because: Said) -> None:
        """Set the cache manager."""
        self._add("cache", type, because, {})

    def backend(self, type: str, /, **options: Any) -> None:
        """Set the backend."""
        self._add("backend", type, None, options)

    def seed(self, said: Said) -> None:
        """Set the seed, where there is one."""
        if said.value is None:
            return
        if said.value < 0:
            self._given.leave(said, "a seed is 0 or more")
            return
        self.data["seed"] = said.value
        self.sources["seed",] = said.source

    def document(self) -> Document:
        """The recipe as data that remembers its sources."""
        return Document(self.data, overrides=self.sources)

    def _add(self, section: str, type: str, because: Said | None, options: dict[str, Any]) -> None:
        said = [value for value in options.values() if isinstance(value, Said)]
        first = because or next(value for value in said if value.is_given or value is said[-1])
        plain = {k: v.value if isinstance(v, Said) else v for k, v in options.items()}
        if self._is_refused(section, type, plain, options, first):
            return
        if section in LISTS:
            path: KeyPath = (section, len(self.data[section]))
            self.data[section].append({"type": type, **plain})
            self.sources.pop((section,), None)
        else:
            path = (section,)
            self.data[section] = {"type": type, **plain}
        self.sources[*path, "type"] = first.source
        for name, value in options.items():
            source = value.source if isinstance(value, Said) else f"as in {self._given.engine}"
            self.sources |= dict.fromkeys(paths_in(plain[name], (*path, name)), source)

    def _is_refused(
        self, section: str, type: str, plain: dict[str, Any], options: dict[str, Any], first: Said
    ) -> bool:
        try:
            self._registry.part_class(SECTIONS[section], type)(**plain)
        except OptionError as error:
            for problem in error.problems:
                option = options.get(str(problem.path[0]) if problem.path else "")
                said = option if isinstance(option, Said) else first
                reason = f"{type} does not take it: {problem.message}"
                self._given.unsaid.append(Unsaid(said.name, said.value, reason))
            return True
        return False
