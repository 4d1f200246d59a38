"""The past of a graph that writes new keys and values into the memory where the old ones are.

The operator GroupQueryAttention is told how many tokens a row has by the sum of its mask, and knows
nothing of padding on the left. So a row is stored from slot 0 on, whatever its column; what
`layers` shows is moved to where every backend has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.backends.onnx_graph import Graph
from genkit.backends.onnx_tensors import bind, bind_facts, lend, run
from genkit.core.contracts import Layer
from genkit.errors import UnsupportedError


class SharedPast:
    """One buffer for the keys and one for the values of each layer; see `column_cache.Memory`.

    They are taken at once, and no step copies them. A forward takes all rows together if each of
    them gets one token, or none of them has a past; the operator takes a block on top of a past for
    one row at a time only, and so do we.

    Args:
        session, graph, sizes, device: as for `GrowingPast`.
        starts: first real column of each row.
        room: the most columns that there will be.
        vocab_size: width of the logits.
        takes_padding: whether rows of one forward may be of different lengths. The operator
            refuses that where it may forget columns.
    """

    def __init__(
        self,
        session: Any,
        graph: Graph,
        sizes: Sequence[tuple[int, int]],
        device: torch.device,
        starts: Sequence[int],
        room: int,
        vocab_size: int,
        *,
        takes_padding: bool = True,
    ) -> None:
        self.past = self
        self._session = session
        self._graph = graph
        self._sizes = sizes
        self._device = device
        self._starts = list(starts)
        self._room = room
        self._vocab_size = vocab_size
        self._takes_padding = takes_padding
        self._length = 0
        self._buffers: list[torch.Tensor | None] = [None] * len(graph.past)
        self._whole: Any = None  # what all rows are bound to
        self._ones = torch.ones((1, 64), dtype=torch.int64, device=device)

    # --- running --------------------------------------------------------------------------

    def run(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """A forward of `input_ids` `[batch, n]`; logits `[batch, num_kept, vocab_size]`.

        Those of positions that are padding are 0. The arguments are those of `GrowingPast.run`.
        """
        batch, n = input_ids.shape
        begin, end = cache.length, cache.length + n
        self._take_room(batch)
        pasts = [max(0, begin - start) for start in self._starts]
        counts = [min(n, max(0, end - start)) for start in self._starts]
        if n == 1 and all(counts):
            logits = self._forward(self._bound(), input_ids, pasts, counts, 1)
        elif not any(pasts) and self._run_together(counts):
            logits = self._prompts(input_ids, counts, num_kept)
        else:
            logits = self._row_by_row(input_ids, pasts, counts, num_kept)
        cache.close(n, end)
        return logits

    def _run_together(self, counts: Sequence[int]) -> bool:
        """Whether rows moved to the left run at once and have logits of their last tokens."""
        # Where a graph gives those of the last slots, they are padding in all but the longest rows.
        takes_padding = self._takes_padding and not self._graph.is_cut
        return all(counts) and (takes_padding or len(set(counts)) == 1)

    def _prompts(
        self, input_ids: torch.Tensor, counts: Sequence[int], num_kept: int
    ) -> torch.Tensor:
        """Rows without a past, moved to the left."""
        width = max(counts)
        rows = input_ids.new_zeros((len(counts), width))
        for row, ids, count in zip(rows, input_ids, counts, strict=True):
            row[:count] = ids[len(ids) - count :]
        binding = self._bound()
        given = self._forward(binding, rows, [0] * len(counts), counts, num_kept)
        return torch.stack(
            [_last(row, count, num_kept) for row, count in zip(given, counts, strict=True)]
        )

    def _row_by_row(
        self,
        input_ids: torch.Tensor,
        pasts: Sequence[int],
        counts: Sequence[int],
        num_kept: int,
    ) -> torch.Tensor:
        """A block on top of a past; rows that have no token in it are left out."""
        shape = len(counts), num_kept, self._vocab_size
        logits = torch.zeros(shape, dtype=self._graph.logits.dtype, device=self._device)
        for i, (past, count) in enumerate(zip(pasts, counts, strict=True)):
            if count:
                ids = input_ids[i : i + 1, input_ids.shape[1] - count :]
                binding = self._bound(i)
                given = self._forward(binding, ids, [past], [count], num_kept)
                logits[i] = _last(given[0], count, num_kept)
        return logits

    def _forward(
        self,
        binding: Any,
        rows: torch.Tensor,
        pasts: Sequence[int],
        counts: Sequence[int],
        num_kept: int,
    ) -> torch.Tensor:
        """Logits of rows that hold `pasts` tokens and are fed `counts` more, and then padding."""
        batch, n = rows.shape
        totals = [past + count for past, count in zip(pasts, counts, strict=True)]
        bind(binding, self._graph.ids, rows)
        self._bind_lengths(binding, totals, max(totals))
        if self._graph.positions is not None:
            fed = torch.arange(n, device=self._device)
            positions = torch.tensor(pasts, device=self._device)[:, None] + fed
            bind(binding, self._graph.positions, positions)
        past = max(pasts)
        bind_facts(binding, self._graph, self._device, past=past, num_columns=n, num_kept=num_kept)
        return self._logits(binding, batch, n, num_kept)

    def _bind_lengths(self, binding: Any, totals: Sequence[int], width: int) -> None:
        """A mask whose sums are the lengths of the rows."""
        if self._graph.mask is None:
            return
        if self._ones.shape[1] < width:
            self._ones = self._ones.new_ones((1, 2 * width))
        mask = self._ones[:, :width]
        if len(totals) > 1:
            mask = mask.expand(len(totals), -1)
            if min(totals) < width:
                columns = torch.arange(width, device=self._device)
                mask = columns < torch.tensor(totals, device=self._device)[:, None]
        bind(binding, self._graph.mask, mask)

    def _logits(self, binding: Any, batch: int, n: int, num_kept: int) -> torch.Tensor:
        port = self._graph.logits
        if self._graph.gives_last_only:
            n = 1
        elif self._graph.takes_num_kept:
            n = num_kept
        shape = batch, n, self._vocab_size
        logits = torch.empty(shape, dtype=port.dtype, device=self._device)
        binding.bind_ortvalue_output(port.name, lend(logits))
        run(self._session, binding, self._device)
        return logits

    def _bound(self, row: int | None = None) -> Any:
        """A binding that has the buffers of all rows, or of one."""
        if row is None and self._whole is not None:
            return self._whole
        binding = self._session.io_binding()
        for ports, buffer in zip(self._graph.past, self._buffers, strict=True):
            assert buffer is not None
            value = lend(buffer if row is None else buffer[row : row + 1])
            binding.bind_ortvalue_input(ports.past.name, value)
            binding.bind_ortvalue_output(ports.present.name, value)
        if row is None:
            self._whole = binding
        return binding

    def _take_room(self, batch: int) -> None:
        if all(buffer is not None for buffer in self._buffers):
            return
        try:
            for j in range(len(self._buffers)):
                self._allocate(j, batch)
        except RuntimeError as error:
            heads, width = self._sizes[0]
            num_bytes = batch * heads * width * self._room * len(self._buffers)
            num_bytes *= self._graph.past[0].past.dtype.itemsize
            raise UnsupportedError(
                f"the cache found no memory for {self._room:,} columns ({num_bytes / 1e9:.3g} GB); "
                "limit the answer (`max_new_tokens`)"
            ) from error

    def _allocate(self, j: int, batch: int) -> torch.Tensor:
        buffer = self._buffers[j]
        if buffer is None:
            heads, width = self._sizes[j]
            shape = batch, heads, self._room, width
            dtype = self._graph.past[j].past.dtype
            buffer = torch.empty(shape, dtype=dtype, device=self._device)
            self._buffers[j], self._whole = buffer, None
        return buffer

    # --- what a cache does with it --------------------------------------------------------

    def clear(self) -> None:
        """Hold nothing; the memory stays."""
        self._length = 0

    def keep(self, output: Any) -> None:
        """A forward has written columns up to `output`."""
        self._length = output

    def crop(self, length: int) -> None:
        """Hold the first `length` columns; only a number changes."""
        self._length = min(length, self._length)

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        index = torch.tensor(indices, device=self._device)
        used = max((self._length - start for start in self._starts), default=0)
        self._starts = [self._starts[i] for i in indices]
        self._whole = None
        for j, buffer in enumerate(self._buffers):
            if buffer is not None:
                # What is not in use is not copied: most of a buffer may be empty.
                rows = buffer.new_empty((len(indices), *buffer.shape[1:]))
                rows[:, :, :used] = buffer[:, :, :used].index_select(0, index)
                self._buffers[j] = rows

    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self._buffers) // 2

    def layers(self) -> list[Layer]:
        """Keys and values of each layer, right-aligned; a copy where rows are padded."""
        tensors = [self._shown(buffer) for buffer in self._buffers if buffer is not None]
        return list(zip(tensors[::2], tensors[1::2], strict=True))

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold these in layer `i` instead; no slots give its memory back."""
        for j, tensor in ((2 * i, keys), (2 * i + 1, values)):
            length = tensor.shape[2]
            if not length:
                self._buffers[j] = self._whole = None
                continue
            rows = self._allocate(j, tensor.shape[0])
            for row, new, start in zip(rows, tensor, self._starts, strict=True):
                if start < length:
                    row[:, : length - start] = new[:, start:].clone()  # may be a view of `row`
            self._length = length

    def num_bytes(self) -> int:
        """Memory held, used or not."""
        return sum(buffer.nbytes for buffer in self._buffers if buffer is not None)

    def rooms(self) -> list[Layer]:
        """None that anybody else may write into."""
        return []

    def extend(self, length: int) -> None:
        """Columns up to `length` have been written."""
        self._length = length

    def _shown(self, buffer: torch.Tensor) -> torch.Tensor:
        length = self._length
        if not any(self._starts):
            return buffer[:, :, :length]
        shown = buffer.new_zeros((*buffer.shape[:2], length, buffer.shape[3]))
        for row, slots, start in zip(shown, buffer, self._starts, strict=True):
            if start < length:
                row[:, start:] = slots[:, : length - start]
        return shown


def _last(logits: torch.Tensor, count: int, num_kept: int) -> torch.Tensor:
    """The last `num_kept` of a row's `count` positions, `[num_kept, vocab_size]`; 0 before them."""
    found = logits[max(0, min(count, len(logits)) - num_kept) : min(count, len(logits))]
    if len(found) == num_kept:
        return found
    padded = logits.new_zeros((num_kept, logits.shape[1]))
    if len(found):
        padded[num_kept - len(found) :] = found
    return padded
