"""The cache manager `quantized`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import CacheManager
from genkit.components.caches.packing import Packed, Packing
from genkit.components.caches.wrapped import WrappedCache
from genkit.core.contracts import Cache, Layer, LayeredCache, Model
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError

__all__ = ["Quantized", "QuantizedCache"]


class Quantized(CacheManager):
    """Keys and values rounded to 8 or 4 bits between steps, to save memory (lossy).

    Each position is rounded once, when its forward is over, by itself, in groups of `group_size`
    numbers along the width of a head. Every number is then off by at most half a step of its own
    group, and a step is about the range of the group divided by ``2**bits``; the formula stands at
    `genkit.components.caches.packing.Packing`. What that does to the logits has no bound: a group
    with one very large number rounds its small ones away. Nothing else has an influence: not the
    other rows, nor that rows leave, nor that the cache was cut back before.

    A forward sees the tokens it is fed unrounded, and all earlier ones rounded. A prompt fed in
    pieces therefore gives other logits than one fed at once, and so does a block of drafted tokens.

    Costs: a number takes 1 byte (8 bits) or half a byte, and each group 5 bytes more. For a
    float32 model with heads of 64 that is 29 % or 16 % of `dynamic`. All layers are expanded for
    each forward, so a step is slower than with `dynamic`, and at its peak holds the packed and the
    expanded form, which is more than `dynamic` holds; `peak_bytes` of the cache says how much that
    has been.

    Needs a model whose keys and values can be read and replaced (`layers`).

    In a recipe: ``cache: {type: quantized, bits: 8, group_size: 32}``
    """

    type: Literal["quantized"] = "quantized"
    bits: Literal[8, 4] = Field(8, description="of each number; 4 save more memory and lose more")
    group_size: int = Field(
        32,
        ge=1,
        description="numbers that share a step; small groups lose less and take more memory",
    )

    grade: ClassVar[Literal["exact", "tolerance", "lossy"]] = "lossy"
    requires: ClassVar[frozenset[str]] = frozenset({"layers"})

    def supports(self, model: Model) -> frozenset[str]:
        """What the model does, but memory is not taken at once and no column is left out."""
        return model.supports - {"positions", "static"}

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A new, empty cache around the model's own."""
        inner: Any = model.new_cache(state)
        return QuantizedCache(inner, self.supports(model), Packing(self.bits, self.group_size))


class QuantizedCache(WrappedCache):
    """A cache whose content is packed between steps; the one it wraps is empty then.

    Args:
        inner: the model's cache.
        supports: capabilities of the model with this manager.
        packing: how numbers are rounded.

    Attributes:
        peak_bytes: the most memory held so far, which is at the end of a step: the packed form, and
            the expanded one with its room. What a layer needs while it is expanded is not counted.
    """

    def __init__(self, inner: LayeredCache, supports: frozenset[str], packing: Packing) -> None:
        super().__init__(inner, supports)
        self.peak_bytes = 0
        self._packing = packing
        self._packed: dict[int, tuple[Packed, Packed]] = {}  # by index of the layer

    @property
    def layers(self) -> Sequence[Layer]:
        """Keys and values of each layer, rounded and expanded."""
        return [self._expanded(i) for i in sorted(self._packed)]

    @property
    def num_bytes(self) -> int:
        """Memory held now; between steps that is the packed form alone."""
        packed = sum(part.num_bytes for layer in self._packed.values() for part in layer)
        return packed + self.inner.num_bytes

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Round other keys and values for layer `i`.

        Raises:
            UnsupportedError: slots are said to be other columns than their own.
        """
        if columns is not None:
            raise UnsupportedError(
                "the cache `quantized` holds every column in its own slot, so that none may be "
                "left out (it does not support `positions`)"
            )
        self._packed[i] = self._packing.pack(keys), self._packing.pack(values)

    def open(self) -> Any:
        """A forward begins: the model's cache holds everything, expanded."""
        for i in self._packed:
            self.inner.replace(i, *self._expanded(i))
        return self.inner.open()

    def advance(self, n: int) -> None:
        """Round the `n` new columns."""
        self.inner.advance(n)
        for i, (keys, values) in enumerate(self.inner.layers):
            new = max(keys.shape[2] - n, 0)
            self._append(i, keys[:, :, new:], values[:, :, new:])
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        self._empty()

    def crop(self, length: int) -> None:
        """Forget every column from `length` on."""
        self.inner.crop(length)
        for i, (keys, values) in self._packed.items():
            if keys.num_slots > length:
                self._packed[i] = keys.cut(length), values.cut(length)
        self._empty()

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order."""
        self.inner.reorder(indices)
        index = torch.tensor(indices)
        for i, (keys, values) in self._packed.items():
            self._packed[i] = keys.take(index), values.take(index)

    def _append(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        new = self._packing.pack(keys), self._packing.pack(values)
        if i in self._packed:
            old = self._packed[i]
            new = old[0].append(new[0]), old[1].append(new[1])
        self._packed[i] = new

    def _expanded(self, i: int) -> Layer:
        keys, values = self._packed[i]
        return self._packing.unpack(keys), self._packing.unpack(values)

    def _empty(self) -> None:
        """Give back the memory of what is expanded."""
        for i, (keys, values) in enumerate(self.inner.layers):
            self.inner.replace(i, keys[:, :, :0], values[:, :, :0])
