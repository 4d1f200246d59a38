"""A recipe, checked: the parts of a pipeline, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

from genkit.recipes.document import Document, KeyPath

if TYPE_CHECKING:
    from genkit.backends.base import Backend
    from genkit.components.base import (
        CacheManager,
        Context,
        Decoder,
        LogitsProcessor,
        Sampler,
        StopCriterion,
    )
    from genkit.pipeline import Pipeline


class Setting(NamedTuple):
    """One value of a recipe, and who says so: `chat.yaml:7`, an override, or `default`."""

    path: KeyPath
    value: Any
    source: str


@dataclass(frozen=True)
class Recipe:
    """The parts of a pipeline, made and checked; no model is loaded yet.

    Two recipes are equal if they mean the same, wherever their values come from.

    Attributes:
        document: what it was read from.
        builder: makes its pipeline; a recipe that comes from a `Kit` has one.
    """

    version: int
    backend: Backend
    context: Context
    cache: CacheManager
    decoder: Decoder
    processors: tuple[LogitsProcessor, ...]
    sampler: Sampler
    stop_criteria: tuple[StopCriterion, ...]
    seed: int | None = None
    document: Document = field(default_factory=lambda: Document({}), compare=False, repr=False)
    builder: Callable[..., Pipeline] | None = field(default=None, compare=False, repr=False)

    def build(self, progress: Callable[[str], Any] | None = None) -> Pipeline:
        """Load the model and put the pipeline together.

        Args:
            progress: called with one line for a person when a long piece of work begins.

        Raises:
            ModelLoadError: the model cannot be loaded.
            TypeError: the recipe was made without a `Kit`.
        """
        if self.builder is None:
            raise TypeError("this recipe does not know its kit; use Kit.build(recipe)")
        return self.builder(self, progress=progress)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain data, every option included; reading it gives the recipe back."""
        return {
            "version": self.version,
            "backend": plain(self.backend),
            "context": plain(self.context),
            "cache": plain(self.cache),
            "decoder": plain(self.decoder),
            "processors": plain(self.processors),
            "sampler": plain(self.sampler),
            "stop_criteria": plain(self.stop_criteria),
            "seed": self.seed,
        }

    def settings(self) -> Iterator[Setting]:
        """Every value in it, in the order of a recipe, and who says so."""
        for path, value in _leaves(self.to_dict(), ()):
            yield Setting(path, value, self.document.source(path))


def plain(value: Any) -> Any:
    """A part, or the value of an option, as what YAML and JSON can hold."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in _type_first(type(value))}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Enum):
        return value.value
    return fspath(value) if isinstance(value, PathLike) else value


def _type_first(model: Any) -> list[str]:
    return sorted(model.model_fields, key=lambda name: name != "type")


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """The values at the ends of nested data; an empty list or mapping is an end too."""
    if not value or not isinstance(value, dict | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(item, (*path, key))
