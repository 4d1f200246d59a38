"""Cache managers: who hands out the memory of a run, and takes it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from genkit.components.base import CacheManager
from genkit.core.contracts import Cache, Model
from genkit.core.state import GenerationState

__all__ = ["Dynamic", "NoCache"]


class Dynamic(CacheManager):
    """A cache of the model's own that grows with the text and is dropped after the run."""

    type: Literal["dynamic"] = "dynamic"

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A new, empty cache."""
        return model.new_cache(state)


class NoCache(CacheManager):
    """No cache: every step computes the whole text again.

    What all other managers are measured against. It serves every model.
    """

    type: Literal["none"] = "none"

    def supports(self, model: Model) -> frozenset[str]:
        """Nothing is kept, so everything can be cut and reordered; rows are the model's affair."""
        return model.supports | {"crop", "reorder", "block"}

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A cache that forgets each step."""
        return _Forgetful(model, state, self.supports(model))


class _Forgetful:
    """A cache whose length stays 0: the model fills a new one of its own at each step."""

    length = 0

    def __init__(self, model: Model, state: GenerationState, supports: frozenset[str]) -> None:
        self.supports = supports
        self._model = model
        self._state = state
        self._inner: Cache | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._inner is None:
            self._inner = self._model.new_cache(self._state)
        return getattr(self._inner, attribute)

    def advance(self, n: int) -> None:
        """Forget what was fed."""
        self._inner = None

    def crop(self, length: int) -> None:
        """Forget what a failed call may have left."""
        self._inner = None

    def reorder(self, indices: Sequence[int]) -> None:
        """The next cache is made for the rows that the state has then."""
        self._inner = None
