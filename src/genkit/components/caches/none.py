"""The cache manager `none`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from genkit.components.base import CacheManager
from genkit.core.contracts import Cache, Model
from genkit.core.state import GenerationState

__all__ = ["NoCache"]


class NoCache(CacheManager):
    """No cache: every step computes the whole text again.

    What all other managers are measured against. It serves every model.
    """

    type: Literal["none"] = "none"

    def supports(self, model: Model) -> frozenset[str]:
        """Nothing is kept, so everything can be cut and reordered; rows are the model's affair."""
        return (model.supports | {"crop", "reorder", "block"}) - {"layers", "positions", "static"}

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A cache that forgets each step."""
        return _Forgetful(model, state, self.supports(model))


class _Forgetful:
    """A cache whose length is 0 between steps: the model fills a new one of its own at each step.

    A step may come in several pieces; it is over when all columns of the state have been fed.
    """

    def __init__(self, model: Model, state: GenerationState, supports: frozenset[str]) -> None:
        self.supports = supports
        self._model = model
        self._state = state
        self._inner: Cache | None = None

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # while copying: there is nothing to ask yet
            raise AttributeError(attribute)
        return getattr(self._of_this_step(), attribute)

    @property
    def length(self) -> int:
        """Columns held: 0, except between the pieces of one step."""
        return 0 if self._inner is None else self._inner.length

    def advance(self, n: int) -> None:
        """Forget what was fed, once that is everything."""
        inner = self._of_this_step()
        inner.advance(n)
        if inner.length >= self._state.length:
            self._inner = None

    def crop(self, length: int) -> None:
        """Forget what a failed call may have left."""
        self._inner = None

    def reorder(self, indices: Sequence[int]) -> None:
        """The next cache is made for the rows that the state has then."""
        self._inner = None

    def _of_this_step(self) -> Cache:
        if self._inner is None:
            self._inner = self._model.new_cache(self._state)
        return self._inner
