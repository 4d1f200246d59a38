"""The cache manager `dynamic`."""

from __future__ import annotations

from typing import Literal

from genkit.components.base import CacheManager
from genkit.core.contracts import Cache, Model
from genkit.core.state import GenerationState

__all__ = ["Dynamic"]


class Dynamic(CacheManager):
    """A cache of the model's own that grows with the text and is dropped after the run."""

    type: Literal["dynamic"] = "dynamic"

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A new, empty cache."""
        return model.new_cache(state)
