"""The past of a graph that returns all keys and values anew, the new columns behind the old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.backends.onnx_graph import Graph
from genkit.backends.onnx_tensors import bind_facts, bind_text, borrow, lend, run
from genkit.core.contracts import Layer


class GrowingPast:
    """Keys and values as the graph gave them last; see `column_cache.Memory`.

    They stay values of ONNX Runtime: what one forward gives is what the next one takes. They become
    tensors, of the same memory, where somebody wants to see them.

    Args:
        session: what is run.
        graph: what it takes and gives.
        sizes: heads and width of the keys, then of the values, of each layer in turn; both are
            lists of `(heads, width)`, as long as ``graph.past``.
        device: where tensors are expected.
        dtype: what keys and values are kept in between forwards; None: as the graph gives them.
    """

    def __init__(
        self,
        session: Any,
        graph: Graph,
        sizes: Sequence[tuple[int, int]],
        device: torch.device,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.past = self
        self._session = session
        self._graph = graph
        self._sizes = sizes
        self._device = device
        self._dtype = dtype
        self.clear()

    def run(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """A forward of `input_ids` `[batch, n]`; logits `[batch, num_kept or more, vocab_size]`.

        Args:
            input_ids: int64, on the device.
            cache: the `ColumnCache` whose memory this is, perhaps wrapped.
            num_kept: how many of the last positions get logits, where the graph can be told.
        """
        graph, device = self._graph, self._device
        batch, n = input_ids.shape
        binding = self._session.io_binding()
        bind_text(binding, graph, input_ids, cache, n, self._num_slots() + n)
        bind_facts(binding, graph, device, past=cache.length, num_columns=n, num_kept=num_kept)
        for ports, value, size in zip(graph.past, self._values, self._sizes, strict=True):
            if value is None:
                heads, width = size
                empty = torch.empty((batch, heads, 0, width), dtype=ports.past.dtype, device=device)
                value = lend(empty)
            elif self._dtype is not None:
                value = lend(borrow(value).to(ports.past.dtype))
            binding.bind_ortvalue_input(ports.past.name, value)
        binding.bind_output(graph.logits.name, device.type, device.index or 0)
        for ports in graph.past:
            binding.bind_output(ports.present.name, device.type, device.index or 0)
        run(self._session, binding, device)
        logits, *values = binding.get_outputs()
        cache.close(n, values)
        return borrow(logits)

    def clear(self) -> None:
        """Hold nothing."""
        self._values: list[Any] = [None] * len(self._graph.past)

    def keep(self, output: Any) -> None:
        """Hold what a forward has returned."""
        self._values = list(output)
        if self._dtype is not None:
            dtype = self._dtype
            self._change(lambda tensor: tensor.to(dtype))

    def crop(self, length: int) -> None:
        """Hold the first `length` columns."""
        self._change(lambda tensor: tensor[:, :, :length])

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        index = torch.tensor(indices, device=self._device)
        self._change(lambda tensor: tensor.index_select(0, index))

    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self._graph.past) // 2

    def layers(self) -> list[Layer]:
        """Keys and values of each layer, once there are some."""
        tensors = [borrow(value) for value in self._values if value is not None]
        return list(zip(tensors[::2], tensors[1::2], strict=True))

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold a copy of these in layer `i` instead."""
        for j, tensor in ((2 * i, keys), (2 * i + 1, values)):
            dtype = self._dtype or self._graph.past[j].past.dtype
            copied = torch.empty(tensor.shape, dtype=dtype, device=self._device).copy_(tensor)
            self._values[j] = lend(copied)

    def num_bytes(self) -> int:
        """Memory held."""
        return sum(borrow(value).nbytes for value in self._values if value is not None)

    def rooms(self) -> list[Layer]:
        """There are none: each forward makes new ones."""
        return []

    def extend(self, length: int) -> None:
        """Nothing is ever written into rooms that there are none of."""

    def _num_slots(self) -> int:
        first = self._values[0] if self._values else None
        return 0 if first is None else int(first.shape()[2])

    def _change(self, change: Any) -> None:
        for j, value in enumerate(self._values):
            if value is not None:
                self._values[j] = lend(change(borrow(value)).contiguous())
