"""The cache manager `prefix`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, PrivateAttr

from genkit.components.base import CacheManager
from genkit.components.caches.prefix_shelves import Shelf, Shelves, version_of
from genkit.components.caches.prefix_store import Entry, PrefixStats, on_host
from genkit.components.caches.wrapped import WrappedCache
from genkit.core.contracts import Layer, LayeredCache, Model
from genkit.core.guard import unguarded
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError

__all__ = ["Prefix", "PrefixStats"]

logger = logging.getLogger(__name__)


class Prefix(CacheManager):
    """Keeps what earlier runs have computed, for prompts that begin with the same tokens.

    After a run, what its cache holds is stored, on the device it is on. A later prompt takes the
    longest beginning that it shares with a stored text and feeds the rest, at least one token. So
    each turn of a conversation, and each prompt with the same instructions, feeds what is new.

    Each model has its own prefixes, and weights that are changed in place begin anew (for a model
    with `weights_version`). Whoever changes in another way what a model computes, such as the
    adapter that is active, makes a new `Prefix`.

    With `disk` prefixes are also files, in the folder `prefixes` of GENKIT_HOME, which other
    processes and later ones use. They are kept by the model's fingerprint: its weights are read
    once, and a file that is damaged or not of this model is never used.

    Costs: up to `max_bytes` for each model, beside the cache of the run; the prefix is copied when
    a run takes it and when it is stored.

    Needs a model whose keys can be read and replaced (`layers`), that takes several tokens after a
    past (`block`), and whose cache can be cut back (`crop`), so no recurrent one.

    In a recipe: ``cache: {type: prefix, max_bytes: 500000000, disk: true}``
    """

    type: Literal["prefix"] = "prefix"
    requires: ClassVar[frozenset[str]] = frozenset({"block", "crop", "layers"})

    max_bytes: int = Field(
        2**30, ge=1, description="the most memory for the prefixes of one model; on disk as well"
    )
    disk: bool = Field(False, description="keep prefixes in files, for other processes too")

    _shelves: Shelves = PrivateAttr(default_factory=Shelves)

    def __copy__(self) -> Self:
        """A copy begins with nothing stored."""
        copied = super().__copy__()
        copied._shelves = Shelves()
        return copied

    def supports(self, model: Model) -> frozenset[str]:
        """All that the model supports.

        Raises:
            UnsupportedError: prefixes are to be kept on disk, and the model has no fingerprint.
        """
        if self.disk and not hasattr(model, "fingerprint"):
            raise UnsupportedError(
                "the cache 'prefix' with `disk: true` keeps files by the fingerprint of a model's "
                f"weights, and the model {type(unguarded(model)).__name__} has no `fingerprint()`; "
                "use `disk: false`, or give it one"
            )
        return model.supports

    def acquire(self, model: Model, state: GenerationState) -> LentCache:
        """A cache that holds the longest beginning of the rows that is stored."""
        supports = self.supports(model)
        shelf = self._shelf(model)
        inner: Any = model.new_cache(state)
        matches = [shelf.find(ids[:-1]) for ids in map(on_host, _rows(state))]
        starts = _starts(state)
        length = min(
            start + (match.length if match else 0)
            for start, match in zip(starts, matches, strict=True)
        )
        if length > 0:
            _fill(inner, length, starts, [match and match.entry for match in matches])
            for start in starts:
                if start < length:
                    shelf.store.count(length - start)
        return LentCache(inner, supports, unguarded(model), shelf, state.rows.tolist())

    def release(self, cache: Any, state: GenerationState) -> None:
        """Store what the cache holds of each row. Where that fails, a warning says so."""
        # The run is over, and may be over because of an error: nothing here must hide that, or
        # spoil a result.
        try:
            same_rows = cache.stored_rows == state.rows.tolist()
            if same_rows and cache.shelf.version == version_of(cache.model):
                _keep(cache, state)
        except Exception as error:
            logger.warning(
                "the prefix of this run is not stored: %s: %s", type(error).__name__, error
            )

    def stats(self, model: Model) -> PrefixStats:
        """What is stored for a model, and how much it has been good for.

        The counts begin anew where the model's weights have changed.
        """
        return self._shelf(model).store.stats()

    def _shelf(self, model: Model) -> Shelf:
        return self._shelves.of(unguarded(model), self.max_bytes, self.disk)


class LentCache(WrappedCache):
    """The cache of one run, which knows where its content goes afterwards.

    Attributes:
        model, shelf: whose content it is, and where prefixes of this model are.
        stored_rows: which row of the caller's batch each of its rows is, if anybody knows.
    """

    def __init__(
        self,
        inner: LayeredCache,
        supports: frozenset[str],
        model: Model,
        shelf: Shelf,
        rows: list[int],
    ) -> None:
        super().__init__(inner, supports)
        self.model = model
        self.shelf = shelf
        self.stored_rows = rows

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`; if that fails, nobody knows which rows the layers hold."""
        rows, self.stored_rows = self.stored_rows, []
        super().reorder(indices)
        self.stored_rows = [rows[i] for i in indices]


def _rows(state: GenerationState) -> Iterator[torch.Tensor]:
    return map(state.row, range(len(state)))


def _starts(state: GenerationState) -> list[int]:
    return [state.length - len(row) for row in _rows(state)]


def _fill(
    cache: LayeredCache, length: int, starts: Sequence[int], entries: Sequence[Entry | None]
) -> None:
    """Put the first `length` columns into an empty cache."""
    cache.advance(length)
    num_layers = next(len(entry.layers) for entry in entries if entry is not None)
    for i in range(num_layers):
        layers = [None if entry is None else entry.layers[i] for entry in entries]
        keys = _columns([layer and layer[0] for layer in layers], starts, length)
        values = _columns([layer and layer[1] for layer in layers], starts, length)
        cache.replace(i, keys, values)


def _columns(
    tensors: Sequence[torch.Tensor | None], starts: Sequence[int], length: int
) -> torch.Tensor:
    """The first `length` columns of all rows, `[batch, heads, length, dim]`; padding is 0."""
    first = next(tensor for tensor in tensors if tensor is not None)
    if len(tensors) == 1:
        return first[:, :, :length]
    _, num_heads, _, dim = first.shape
    columns = first.new_zeros((len(tensors), num_heads, length, dim))
    for row, start, tensor in zip(columns, starts, tensors, strict=True):
        if tensor is not None and start < length:
            row[:, start:] = tensor[0, :, : length - start]
    return columns


def _keep(cache: LentCache, state: GenerationState) -> None:
    """Store what a cache holds of each row of the state."""
    length = min(cache.length, state.length)
    cache.crop(length)  # whatever a failed forward left beyond
    layers = cache.layers
    if not layers or not all(_is_whole(layer, len(state), length) for layer in layers):
        return
    for i, (row, start) in enumerate(zip(_rows(state), _starts(state), strict=True)):
        if start >= length:
            continue
        ids = on_host(row[: length - start])
        places = cache.shelf.lacking(ids)
        if not places:
            continue
        entry = Entry(ids, tuple(_row_of(layer, i, start) for layer in layers))
        if all(tensor.isfinite().all() for layer in entry.layers for tensor in layer):
            for place in places:
                place.add(entry)


def _is_whole(layer: Layer, num_rows: int, length: int) -> bool:
    """Whether a layer holds every column of every row; of less no beginning can be cut."""
    return all(tensor.shape[0] == num_rows and tensor.shape[2] == length for tensor in layer)


def _row_of(layer: Layer, i: int, start: int) -> Layer:
    """Keys and values of one row from a column on, in memory of their own."""
    keys, values = (
        tensor[i : i + 1, :, start:].detach().clone(memory_format=torch.contiguous_format)
        for tensor in layer
    )
    return keys, values
