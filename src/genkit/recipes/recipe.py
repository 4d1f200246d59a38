"""A recipe, checked: the parts of a pipeline, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from genkit.core.settings import Setting, leaves, plain
from genkit.recipes.document import Document

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
        for path, value in leaves(self.to_dict()):
            yield Setting(path, value, self.document.source(path))
