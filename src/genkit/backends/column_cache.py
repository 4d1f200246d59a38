"""The cache of one run: which columns there are, whatever the memory behind it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from genkit.core.contracts import Layer
from genkit.errors import UnsupportedError


class Memory(Protocol):
    """What a model keeps between calls, in the form that its backend wants it.

    Attributes:
        past: what the next forward is handed.
    """

    past: Any

    def clear(self) -> None:
        """Hold nothing."""

    def keep(self, output: Any) -> None:
        """A forward has succeeded and returned this."""

    def crop(self, length: int) -> None:
        """Hold the first `length` columns."""

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order."""

    def num_layers(self) -> int:
        """How many layers hold keys of their own."""

    def layers(self) -> list[Layer]:
        """Keys and values of these layers, once there are some."""

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold these in layer `i` instead."""

    def num_bytes(self) -> int:
        """Memory held."""

    def rooms(self) -> list[Layer]:
        """The whole memory of these layers, used or not; empty unless it was taken at once."""

    def extend(self, length: int) -> None:
        """Columns up to `length` have been written into the rooms."""


class ColumnCache:
    """What a model has seen of `state.token_ids`; see `genkit.core.contracts.LayeredCache`.

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
        self._columns: dict[int, torch.Tensor] = {}  # of layers where slot j is not column j
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
        if not self.length:
            self._restore(0)
        self._memory.reorder(indices)
        index = torch.tensor(indices, device=self.device)
        self._columns = {i: columns[index] for i, columns in self._columns.items()}
        self._set_starts([self._host_starts[i] for i in indices])

    @property
    def layers(self) -> Sequence[Layer]:
        """Keys and values of each layer that holds some."""
        self._settle()
        return self._memory.layers()

    @property
    def num_bytes(self) -> int:
        """Memory held for keys and values, room for later columns included."""
        return self._memory.num_bytes()

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Put other keys and values into layer `i`; see `LayeredCache.replace`.

        Raises:
            UnsupportedError: columns are left out, and the model needs all of them.
        """
        if columns is not None and "positions" not in self.supports:
            raise UnsupportedError(
                "this model finds distances by counting keys, so that none may be left out "
                "(it does not support `positions`)"
            )
        self._memory.put(i, keys, values)
        if columns is None:
            self._columns.pop(i, None)
        else:
            self._columns[i] = columns.to(self.device)
        self._held = self.length

    @property
    def longest(self) -> int:
        """The tokens of the row that has most of them."""
        return self.length - min(self._host_starts)

    def open(self) -> Any:
        """The memory for the next forward, holding exactly `length` columns.

        Until `close` its content counts as unknown.
        """
        self._settle()
        self._held = None
        return self._memory.past

    def rooms(self) -> list[Layer]:
        """The whole memory of each layer, for a decode step that writes into it itself.

        Empty where the memory was not taken at once, or slots are not the columns of their place.
        """
        if self._columns:
            return []
        self._settle()
        return self._memory.rooms()

    def written(self, n: int) -> None:
        """`n` columns have been written into the rooms."""
        self._memory.extend(self.length + n)
        self._held = self.length + n

    @property
    def needs_mask(self) -> bool:
        """Whether some slots hold no token, or not the one that their place says."""
        return self.padded or bool(self._columns)

    def close(self, n: int, output: Any) -> None:
        """A forward of `n` columns has succeeded and returned `output`."""
        self._memory.keep(output)
        self._held = self.length + n
        if self._columns:
            self._columns = dict.fromkeys(self._columns, self._slots_with(n))

    def positions(self, n: int, start: int | None = None) -> torch.Tensor:
        """Positions of `n` columns, int64 `[1, n]`, or `[batch, n]` if rows are padded.

        Args:
            n: how many.
            start: the first of them; by default the next one.
        """
        start = self.length if start is None else start
        columns = self.count(start + n).narrow(1, start, n)
        return (columns - self.starts[:, None]).clamp(min=0) if self.padded else columns

    def count(self, end: int) -> torch.Tensor:
        """0, 1, 2, ... up to `end`, int64 `[1, end]`."""
        if self._counted.shape[1] < end:
            self._counted = torch.arange(max(2 * end, 64), device=self.device)[None]
        return self._counted.narrow(1, 0, end)

    def mask(self, n: int) -> torch.Tensor | None:
        """Which slots hold a token, the next `n` included, int64 `[batch, slots + n]`."""
        if not self.needs_mask:
            return None
        return (self._slots_with(n) >= self.starts[:, None]).long()

    def _slots_with(self, n: int) -> torch.Tensor:
        """The column of each slot and of the next `n`, int64 `[1 or batch, slots + n]`."""
        counted = self.count(self.length + n)
        held = self._slots()
        if held is None:
            return counted
        return torch.cat((held, counted[:, self.length :].expand(len(held), -1)), 1)

    def _slots(self) -> torch.Tensor | None:
        """The column of each slot, int64 `[batch, slots]`; None: slot j is column j.

        One mask serves all layers of a transformers model, so they must agree.
        """
        if not self._columns:
            return None
        first, *others = self._columns.values()
        if len(self._columns) < self._memory.num_layers() or any(
            columns is not first and not torch.equal(columns, first) for columns in others
        ):
            raise UnsupportedError(
                "the layers of this cache hold different columns; a model of transformers has one "
                "mask for all of them"
            )
        return first

    def _cut_slots(self, length: int) -> int:
        """Cut `_columns` to those before `length`; how many slots are left."""
        slots = self._slots()
        if slots is None:
            return length
        beyond = (slots >= length).sum(1).tolist()
        if len(set(beyond)) > 1:
            raise UnsupportedError(
                f"cannot crop to {length} columns: rows hold different ones, and more would be cut "
                "from some than from others"
            )
        kept = slots[:, : slots.shape[1] - beyond[0]]
        self._columns = dict.fromkeys(self._columns, kept)
        return kept.shape[1]

    def _settle(self) -> None:
        """Drop what an ignored `advance` or a failed forward has left beyond `length`."""
        if self._held != self.length:
            self._restore(self.length)

    def _restore(self, length: int) -> None:
        if length == 0:
            self._memory.clear()
            self._columns = {}
        elif self._held is None and "crop" not in self.supports:
            raise UnsupportedError(
                "a forward of a recurrent model has failed and left its state spoilt; start again "
                "with an empty cache"
            )
        else:
            self._memory.crop(self._cut_slots(length))
        self._held = length

    def _set_starts(self, starts: list[int]) -> None:
        # Known on the host: whether a mask is needed must not cost a wait for the device.
        self._host_starts = starts
        self.padded = any(starts)
        self.starts = torch.tensor(starts, dtype=torch.int64, device=self.device)
