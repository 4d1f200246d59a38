"""The cache manager `sink_window`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import CacheManager
from genkit.components.caches.wrapped import WrappedCache
from genkit.core.contracts import Cache, LayeredCache, Model
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError

__all__ = ["SinkWindow", "SinkWindowCache"]


class SinkWindow(CacheManager):
    """The first tokens and the latest ones; what lies between is forgotten (lossy).

    Of each row the first `num_sinks` tokens stay, on which models rest much of their attention,
    and the last `window` before the next one (Xiao et al. 2023, "attention sinks"). The prompt is
    read whole; forgetting begins after it, and depends on no other row. Keys keep the positions at
    which they were made, so a run still ends, with `length`, where the model's context is full.
    What is forgotten has no bound on the logits: an answer that needs it is lost.

    Costs: memory for ``num_sinks + window`` tokens a row, however long the answer is; after each
    step the kept keys are moved up, one copy of them a layer.

    Needs a model whose keys can be read and replaced (`layers`), and that finds distances by
    position and not by counting keys (`positions`), so no model with windowed layers or alibi.
    What is forgotten is gone: the cache cannot be cut back, and a block of tokens fed after the
    prompt would see more than the same tokens one by one.

    In a recipe: ``cache: {type: sink_window, num_sinks: 4, window: 1024}``
    """

    type: Literal["sink_window"] = "sink_window"
    num_sinks: int = Field(4, ge=0, description="how many of the first tokens of a row stay")
    window: int = Field(
        1024, ge=1, description="how many of the latest stay; the one being fed comes on top"
    )

    grade: ClassVar[Literal["exact", "tolerance", "lossy"]] = "lossy"
    requires: ClassVar[frozenset[str]] = frozenset({"layers", "positions"})

    def supports(self, model: Model) -> frozenset[str]:
        """Rows may differ, leave and be repeated; nothing else can be taken for granted."""
        return model.supports & {"ragged", "reorder"}

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A new, empty cache around the model's own."""
        inner: Any = model.new_cache(state)
        return SinkWindowCache(inner, self.supports(model), state, self.num_sinks, self.window)


class SinkWindowCache(WrappedCache):
    """A cache that keeps the first and the last columns of each row.

    Args:
        inner: the model's cache.
        supports: capabilities of the model with this manager.
        state: says where rows begin and prompts end.
        num_sinks, window: how many of the first and of the last columns of a row stay.
    """

    def __init__(
        self,
        inner: LayeredCache,
        supports: frozenset[str],
        state: GenerationState,
        num_sinks: int,
        window: int,
    ) -> None:
        super().__init__(inner, supports)
        self._num_sinks = num_sinks
        self._window = window
        # On the host, like all that decides how many slots there are.
        self._starts: list[int] = state.starts.tolist()
        self._prompt_end = int(state.prompt_ends.max())
        self._columns: torch.Tensor | None = None  # of each slot; None: slot j is column j

    def advance(self, n: int) -> None:
        """`n` more columns have been consumed; evict, if the prompt has been."""
        self.inner.advance(n)
        if self._columns is not None:
            self._columns = torch.cat((self._columns, self._counted(self.length - n)), 1)
        most = self._num_sinks + self._window
        if self.length >= self._prompt_end and self.length - min(self._starts) > most:
            if self._is_settled(n):
                self._drop_oldest(n)
            else:
                self._choose(most)

    def crop(self, length: int) -> None:
        """Drop what a failed forward left beyond `length`.

        Raises:
            UnsupportedError: `length` is less than what is held, and columns before it are gone.
        """
        if length < self.length and self._columns is not None:
            raise UnsupportedError(
                f"the cache `sink_window` cannot be cut back from {self.length} to {length} "
                "columns: it has forgotten some of those that would be the latest then"
            )
        self.inner.crop(length)

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order."""
        self.inner.reorder(indices)
        self._starts = [self._starts[i] for i in indices]
        if self._columns is not None:
            self._columns = self._columns[torch.tensor(indices, device=self._columns.device)]

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Put other keys and values into layer `i`; all layers hold the same columns."""
        self.inner.replace(i, keys, values, columns)
        self._columns = columns

    def _is_settled(self, n: int) -> bool:
        """Whether, before the `n` new columns, every row held its sinks and a full window."""
        most = self._num_sinks + self._window
        fewest = self.length - n - max(self._starts)
        return self._columns is not None and self._columns.shape[1] - n == most <= fewest

    def _drop_oldest(self, n: int) -> None:
        """Drop the same slots of every row, the `n` behind the sinks: a plain copy of the rest."""
        assert self._columns is not None

        def rest(tensor: torch.Tensor, dim: int) -> torch.Tensor:
            sinks = tensor.narrow(dim, 0, self._num_sinks)
            first = self._num_sinks + n
            return torch.cat((sinks, tensor.narrow(dim, first, tensor.shape[dim] - first)), dim)

        columns = rest(self._columns, 1)
        for i, (keys, values) in enumerate(self.inner.layers):
            self.replace(i, rest(keys, 2), rest(values, 2), columns)

    def _choose(self, most: int) -> None:
        """Keep at most so many slots, chosen row by row; rows with fewer get -1 on the left."""
        columns = self._counted(0) if self._columns is None else self._columns
        from_start = columns - self.starts[:, None]
        is_kept = (columns >= self.length - self._window) | (from_start < self._num_sinks)
        is_kept &= from_start >= 0
        index = is_kept.argsort(dim=1, stable=True)[:, -most:]
        columns = columns.where(is_kept, -1).gather(1, index)
        for i, (keys, values) in enumerate(self.inner.layers):
            slots = index[:, None, :, None].to(keys.device)
            self.replace(i, keys.take_along_dim(slots, 2), values.take_along_dim(slots, 2), columns)

    def _counted(self, first: int) -> torch.Tensor:
        """Columns from `first` to the end, int64 `[batch, columns]`."""
        columns = torch.arange(first, self.length, device=self.starts.device)
        return columns.expand(len(self._starts), -1)
