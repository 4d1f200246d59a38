"""Checks a document and makes its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from genkit.core.settings import KeyPath
from genkit.errors import (
    FAILURES,
    GenkitError,
    OptionError,
    OptionProblem,
    RecipeError,
    UnsupportedError,
    nearest,
)
from genkit.plugins.plugin import one_line
from genkit.plugins.registry import Registry
from genkit.recipes.document import Document, describe
from genkit.recipes.recipe import Recipe
from genkit.recipes.schema import KEYS, LISTS, MAX_SEED, REQUIRED, SECTIONS, VERSION

if TYPE_CHECKING:
    from genkit.components.base import Component
    from genkit.errors import RecipeProblem

_NUMBER = re.compile(r"\s*[-+]?[\d._]+(e[-+]?\d+)?\s*", re.IGNORECASE)


def make_recipe(document: Document, registry: Registry) -> Recipe:
    """The recipe that a document with all its keys describes.

    Raises:
        RecipeError: lists everything that is wrong, each with file, line and key path.
    """
    checker = _Checker(document, registry)
    made = checker.check()
    if checker.problems:
        raise RecipeError(checker.problems)
    return Recipe(**made, document=document)


class _Limit(NamedTuple):
    """How many tokens a stop criterion allows after a prompt of one token, and of two."""

    type: str
    after_one: int
    after_two: int

    @property
    def grows(self) -> bool:
        """Whether it limits the answer; one that does not limits prompt and answer together."""
        return self.after_two > self.after_one


class _Checker:
    """Walks through a document, makes its parts and collects what is wrong."""

    def __init__(self, document: Document, registry: Registry) -> None:
        self.document = document
        self.registry = registry
        self.problems: list[RecipeProblem] = []

    def check(self) -> dict[str, Any]:
        data = self.document.data
        for key in data:
            if key not in KEYS:
                known = f"{nearest(str(key), KEYS)}; keys: {', '.join(KEYS)}"
                self._wrong((key,), f"there is no such key{known}")
        for key, message in REQUIRED.items():
            if key not in data:
                self._wrong((key,), message)
        made = {key: self._section(key, data[key]) for key in SECTIONS if key in data}
        made["version"] = self._version(data.get("version", VERSION))
        made["seed"] = self._seed(data["seed"])
        if not self.problems:
            self._check_limits(made["stop_criteria"])
            self._check_cache(made["backend"], made["cache"])
        return made

    def _section(self, key: str, value: Any) -> Any:
        if key not in LISTS:
            return self._part(SECTIONS[key], value, (key,))
        if not isinstance(value, list | tuple):
            self._wrong((key,), f"expected a list, found {describe(value)}; write [] for none")
            return ()
        return tuple(self._part(SECTIONS[key], item, (key, i)) for i, item in enumerate(value))

    def _part(self, kind: str, value: Any, path: KeyPath) -> Component | None:
        """A part from its mapping; None if something is wrong with it."""
        known_problems = len(self.problems)
        part_class = self._part_class(kind, value, path)
        if part_class is None:
            return None
        options = self._options(part_class, value, path)
        if len(self.problems) > known_problems:
            return None
        try:
            part = part_class(**options)
        except OptionError as error:
            for problem in error.problems:
                self._wrong((*path, *problem.path), _message(problem))
            return None
        except FAILURES as error:  # a part of a plugin may raise whatever it likes
            said = str(error) if isinstance(error, GenkitError) else one_line(error)
            self._wrong(path, f"{value['type']} cannot be made: {said}")
            return None
        self._refuse_misread(value, part, path)
        return part

    def _part_class(self, kind: str, value: Any, path: KeyPath) -> type[Component] | None:
        if not isinstance(value, Mapping):
            example = value if isinstance(value, str) else "..."
            message = f"expected a mapping like {{type: {example}}}, found {describe(value)}"
            self._wrong(path, message)
            return None
        name = value.get("type")
        if not isinstance(name, str):
            found = f", found {describe(name)}" if "type" in value else ""
            known = ", ".join(self.registry.names(kind))
            self._wrong((*path, "type"), f"the name of a part is required{found}; known: {known}")
            return None
        try:
            return self.registry.part_class(kind, name)
        except GenkitError as error:
            self._wrong((*path, "type"), str(error))
            return None

    def _options(
        self, part_class: type[Component], value: Mapping[Any, Any], path: KeyPath
    ) -> dict[str, Any]:
        """The options as they are written; where an option is a part itself, that part."""
        options = {str(key): item for key, item in value.items() if key != "type"}
        if "self" in options:  # no class can be called with this one
            known = ", ".join(sorted(set(part_class.model_fields) - {"type"})) or "none"
            self._wrong((*path, "self"), f"there is no such option; options: {known}")
        for name, field in part_class.model_fields.items():
            kind = _kind_of_option(field.annotation)
            if kind is not None and options.get(name) is not None:
                options[name] = self._inner(kind, options[name], (*path, name))
        return options

    def _inner(self, kind: str, value: Any, path: KeyPath) -> Any:
        if isinstance(value, list):
            return [self._part(kind, item, (*path, i)) for i, item in enumerate(value)]
        return self._part(kind, value, path)

    def _refuse_misread(self, value: Any, part: Component, path: KeyPath) -> None:
        for inner, expected, found in _misread(value, part, path):
            self._wrong(inner, f"expected {expected}, found {describe(found)}")

    def _version(self, version: Any) -> int:
        if version != VERSION or isinstance(version, bool):
            message = f"this genkit reads version {VERSION}, found {describe(version)}"
            self._wrong(("version",), message)
        return VERSION

    def _seed(self, seed: Any) -> Any:
        if isinstance(seed, float) and seed.is_integer() and 0 <= seed <= MAX_SEED:
            return int(seed)  # 1e3 is a whole number
        whole = isinstance(seed, int) and not isinstance(seed, bool)
        if seed is not None and not (whole and 0 <= seed <= MAX_SEED):
            message = f"expected a whole number from 0 to 2**64 - 1, found {describe(seed)}"
            self._wrong(("seed",), message)
        return seed

    def _check_limits(self, criteria: Sequence[Any]) -> None:
        limits = [(i, self._limit(i, criterion)) for i, criterion in enumerate(criteria)]
        bounded = [(i, limit) for i, limit in limits if limit is not None]
        for (_, first), (i, second) in combinations(bounded, 2):
            message = _contradiction(first, second)
            if message is not None:
                self._wrong(("stop_criteria", i), message)

    def _limit(self, i: int, criterion: Any) -> _Limit | None:
        try:
            bounds = criterion.bound(1), criterion.bound(2)
        except FAILURES as error:  # a part of a plugin may raise whatever it likes
            message = f"{criterion.type} does not say its bound: {one_line(error)}"
            self._wrong(("stop_criteria", i), message)
            return None
        if bounds == (None, None):
            return None
        if not all(isinstance(bound, int) for bound in bounds):
            message = (
                f"{criterion.type} does not say its bound: it says {bounds[0]!r}, {bounds[1]!r}"
            )
            self._wrong(("stop_criteria", i), message)
            return None
        return _Limit(criterion.type, *bounds)

    def _check_cache(self, backend: Any, manager: Any) -> None:
        from genkit.pipeline import check_cache_use

        try:
            check_cache_use(backend, manager)
        except UnsupportedError as error:
            self._wrong(("cache",), str(error))

    def _wrong(self, path: KeyPath, message: str) -> None:
        self.problems.append(self.document.problem(path, message))


def _message(problem: OptionProblem) -> str:
    """A part's complaint; a text is called one, because it may look like a number."""
    is_text = isinstance(problem.found, str) and problem.message.endswith(f"{problem.found!r}")
    return f"{problem.message} (text)" if is_text else problem.message


def _misread(given: Any, made: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str, Any]]:
    """Text that has become a number or a switch, and numbers that have become a switch.

    Pydantic takes `'010'` for 10, `'1_000'` for 1000 and `'yes'` for true, and whoever writes YAML
    would never know. A part that reads texts like `5s` on purpose may do so.
    """
    if isinstance(given, Mapping):
        for key, item in given.items():
            inner = made.get(key) if isinstance(made, Mapping) else getattr(made, str(key), None)
            yield from _misread(item, inner, (*path, key))
    elif isinstance(given, list | tuple):
        pairs = zip(given, made, strict=False) if isinstance(made, list | tuple) else ()
        for i, (item, inner) in enumerate(pairs):
            yield from _misread(item, inner, (*path, i))
    elif isinstance(made, bool) and not isinstance(given, bool):
        yield path, "true or false", given
    elif isinstance(made, int | float) and isinstance(given, str) and _NUMBER.fullmatch(given):
        form = f"like {given.replace('_', '')}" if "_" in given else "like 10, 0.5 or 1e-3"
        yield path, f"a number, written {form} and without quotes", given


def _kind_of_option(annotation: Any) -> str | None:
    """The kind of part that an option takes, as in ``amateur: Backend``, if it takes one."""
    from genkit.components.base import Component

    if isinstance(annotation, type) and issubclass(annotation, Component):
        return annotation.kind
    kinds = (_kind_of_option(argument) for argument in get_args(annotation))
    return next((kind for kind in kinds if kind is not None), None)


def _contradiction(first: _Limit, second: _Limit) -> str | None:
    """Why two limits of length cannot both be meant."""
    if first.type == second.type:
        same = first.after_one == second.after_one
        return None if same else f"there are two {second.type} with different limits; keep one"
    answer, total = sorted((first, second), key=lambda limit: limit.grows, reverse=True)
    most = answer.after_one - 1
    if answer.grows and not total.grows and most >= total.after_one:
        return (
            f"{answer.type} asks for {most} tokens, and {total.type}, which counts the prompt too, "
            f"ends at {total.after_one}; drop one"
        )
    return None
