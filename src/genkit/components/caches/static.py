"""The cache manager `static`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from genkit.components.base import CacheManager
from genkit.core.contracts import Cache
from genkit.core.state import GenerationState

__all__ = ["Static"]


class Static(CacheManager):
    """A cache of the model's own, allocated once for the longest that the run can become.

    Nothing is copied while the text grows. `compile: true` of the backend `pytorch` asks for it.

    Costs: the memory of the longest text from the first token on. Reserve what you need: without a
    limit on the answer that is the model's whole context.

    Needs a model whose memory can be taken at once (`static`), so no recurrent one.

    In a recipe: ``cache: {type: static}``
    """

    type: Literal["static"] = "static"
    requires: ClassVar[frozenset[str]] = frozenset({"static"})

    def acquire(self, model: Any, state: GenerationState) -> Cache:
        """A new, empty cache with room for ``state.max_length`` columns."""
        cache: Cache = model.new_static_cache(state)
        return cache
