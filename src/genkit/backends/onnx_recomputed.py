"""The past of a graph that takes none: the tokens, which each forward reads once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.backends.onnx_graph import Graph
from genkit.backends.onnx_tensors import bind_facts, bind_text, borrow, run
from genkit.core.contracts import Layer


class RecomputedPast:
    """The ids of all columns so far; see `column_cache.Memory`.

    Args:
        session, graph, device: as for `GrowingPast`.
    """

    def __init__(self, session: Any, graph: Graph, device: torch.device) -> None:
        self.past = self
        self._session = session
        self._graph = graph
        self._device = device
        self.clear()

    def run(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """A forward of all columns; the arguments and the result are those of `GrowingPast.run`."""
        graph, device = self._graph, self._device
        n = input_ids.shape[1]
        ids = torch.cat((input_ids[:, :0] if self._ids is None else self._ids, input_ids), 1)
        width = ids.shape[1]
        binding = self._session.io_binding()
        bind_text(binding, graph, ids, cache, n, width)
        bind_facts(binding, graph, device, past=0, num_columns=width, num_kept=num_kept)
        binding.bind_output(graph.logits.name, device.type, device.index or 0)
        run(self._session, binding, device)
        cache.close(n, ids)
        return borrow(binding.get_outputs()[0])

    def clear(self) -> None:
        """Hold nothing."""
        self._ids: torch.Tensor | None = None

    def keep(self, output: Any) -> None:
        """Hold these ids."""
        self._ids = output

    def crop(self, length: int) -> None:
        """Hold the first `length` columns."""
        if self._ids is not None:
            self._ids = self._ids[:, :length]

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        if self._ids is not None:
            self._ids = self._ids[torch.tensor(indices, device=self._device)]

    def num_layers(self) -> int:
        """No layer holds keys."""
        return 0

    def layers(self) -> list[Layer]:
        """No layer holds keys."""
        return []

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """There is no layer to put them into."""
        raise IndexError(f"there is no layer {i}: the graph keeps no keys")

    def num_bytes(self) -> int:
        """Memory held: for keys and values none."""
        return 0

    def rooms(self) -> list[Layer]:
        """There are none."""
        return []

    def extend(self, length: int) -> None:
        """Nothing is ever written into rooms that there are none of."""
