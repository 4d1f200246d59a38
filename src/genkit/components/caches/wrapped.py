"""A cache around the model's own, of which a manager overrides what it does differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.core.contracts import Layer, LayeredCache


class WrappedCache:
    """Passes everything on to the model's cache; see `genkit.core.contracts.LayeredCache`.

    The model works on a cache through its methods only, so a manager that overrides `advance` and
    `open` here runs on every backend whose caches have `layers`.

    Args:
        inner: the model's cache.
        supports: capabilities of the model with this manager.
    """

    def __init__(self, inner: LayeredCache, supports: frozenset[str]) -> None:
        self.inner = inner
        self.supports = supports

    def __getattr__(self, attribute: str) -> Any:
        """What a backend asks of its own caches beyond the contract."""
        if attribute == "inner":  # not set yet: while copying
            raise AttributeError(attribute)
        return getattr(self.inner, attribute)

    @property
    def length(self) -> int:
        """Columns consumed."""
        return self.inner.length

    @property
    def starts(self) -> torch.Tensor:
        """First real column of each row, int64 `[batch]`."""
        return self.inner.starts

    @property
    def layers(self) -> Sequence[Layer]:
        """Keys and values of each layer."""
        return self.inner.layers

    @property
    def num_bytes(self) -> int:
        """Memory held between steps."""
        return self.inner.num_bytes

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Put other keys and values into layer `i`."""
        self.inner.replace(i, keys, values, columns)

    def open(self) -> Any:
        """A forward begins."""
        return self.inner.open()

    def advance(self, n: int) -> None:
        """`n` more columns have been consumed."""
        self.inner.advance(n)

    def crop(self, length: int) -> None:
        """Forget every column from `length` on."""
        self.inner.crop(length)

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order."""
        self.inner.reorder(indices)
