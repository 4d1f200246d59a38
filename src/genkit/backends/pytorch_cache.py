"""The cache of one run of a PyTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.backends.transformers_compat import Memory
from genkit.errors import UnsupportedError


class PyTorchCache:
    """What a model has seen of `state.token_ids`; see `genkit.core.contracts.Cache`.

    The model works on it through methods only, so that a manager may wrap it and override
    `advance`. The memory may therefore hold more than `length` columns: what an ignored `advance`
    or a failed forward left behind. `open` drops that before the next forward.

    Args:
        starts: first real column of each row.
        supports: capabilities of the model.
        memory: where the model writes.
        device: where masks and positions are needed.
    """

    def __init__(
        self, starts: Sequence[int], supports: frozenset[str], memory: Memory, device: torch.device
    ) -> None:
        self.length = 0
        self.supports = supports
        self.device = device
        self._memory = memory
        self._held: int | None = 0  # columns in the memory; None while nobody knows
        self._counted = torch.empty((1, 0), dtype=torch.int64, device=device)  # 0, 1, 2, ...
        self._set_starts(list(starts))

    def advance(self, n: int) -> None:
        """`n` more columns have been consumed."""
        self.length += n

    def crop(self, length: int) -> None:
        """Forget every column from `length` on.

        Raises:
            UnsupportedError: the model is recurrent; its state can only be emptied.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop to {length}: the cache holds {self.length} columns")
        if self._held != length:
            self._restore(length)
        self.length = length

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        if self.length:
            self._memory.reorder(indices)
        else:
            self._restore(0)
        self._set_starts([self._host_starts[i] for i in indices])

    @property
    def longest(self) -> int:
        """The tokens of the row that has most of them."""
        return self.length - min(self._host_starts)

    def open(self) -> Any:
        """The memory for the next forward, holding exactly `length` columns.

        Until `close` its content counts as unknown.
        """
        if self._held != self.length:
            self._restore(self.length)
        self._held = None
        return self._memory.past

    def close(self, n: int, output: Any) -> None:
        """A forward of `n` columns has succeeded and returned `output`."""
        self._memory.keep(output)
        self._held = self.length + n

    def positions(self, n: int) -> torch.Tensor:
        """Positions of the next `n` columns, int64 `[1, n]`, or `[batch, n]` if rows are padded."""
        end = self.length + n
        if self._counted.shape[1] < end:
            self._counted = torch.arange(max(2 * end, 64), device=self.device)[None]
        columns = self._counted.narrow(1, self.length, n)
        return (columns - self.starts[:, None]).clamp(min=0) if self.padded else columns

    def mask(self, n: int) -> torch.Tensor | None:
        """Which columns are real, int64 `[batch, length + n]`; None if all of them are."""
        if not self.padded:
            return None
        columns = torch.arange(self.length + n, device=self.device)
        return (columns >= self.starts[:, None]).long()

    def _restore(self, length: int) -> None:
        if length == 0:
            self._memory.clear()
        elif self._held is None and "crop" not in self.supports:
            raise UnsupportedError(
                "a forward of a recurrent model has failed and left its state spoilt; start again "
                "with an empty cache"
            )
        else:
            self._memory.crop(length)
        self._held = length

    def _set_starts(self, starts: list[int]) -> None:
        # Known on the host: whether a mask is needed must not cost a wait for the device.
        self._host_starts = starts
        self.padded = any(starts)
        self.starts = torch.tensor(starts, dtype=torch.int64, device=self.device)
