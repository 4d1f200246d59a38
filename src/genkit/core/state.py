"""The tokens of a batch while they are generated."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from genkit.core.random import RowRandom


class GenerationState:
    """The rectangle of all token ids, and where in it each row begins.

    Rows are left-padded, so that one number, the column, counts for all of them::

        column      0  1  2  3  4  5
        row 0       .  .  7  3  9  4        starts[0] = 2, prompt_ends[0] = 4
        row 1       5  1  8  2  6  1        starts[1] = 0, prompt_ends[1] = 4

    Models and caches read the rectangle. Parts read `row`, `prompt_row` and `generated_row`, which
    know no padding, or `token_ids` together with `is_token`.

    A row that ends leaves the state after that step, so parts see unfinished rows only.

    Attributes:
        token_ids: the rectangle, int64 `[batch, length]`.
        starts, prompt_ends, ends: first real column, first generated column, and the column at
            which the row is full, int64 `[batch]`.
        rows: the index of each row in the caller's batch, int64 `[batch]`, on the host.
        finished: bool `[batch]`, false for every row, since a row that ends leaves; what a stop
            criterion gives that knows, without looking, that it ends none.
        last_ids: the ids appended last, int64 `[batch]`.
        last_logits: what the model gave for them, before any processor, float `[batch, vocab]`;
            None where nobody has said.
        length: number of columns so far; max_length: the most the run can reach.
        nearest_end: the least of `ends`, known on the host.
        rng: where draws come from.
        device: where the tensors live.

    Args:
        prompts: the prompt of each row, as token ids.
        limits: the most tokens each row may reach, its prompt included.
        rng: where draws come from, one stream a row.
        rows: the index of each row in the caller's batch; by default 0, 1, ...
        device: where the tensors live.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        rng: RowRandom,
        rows: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        width = max(map(len, prompts))
        starts = [width - len(prompt) for prompt in prompts]
        padded = [[0] * start + list(prompt) for start, prompt in zip(starts, prompts, strict=True)]
        self.device = torch.device(device)
        self.rng = rng
        self.length = width
        ends = [start + limit for start, limit in zip(starts, limits, strict=True)]
        self.max_length = max(ends)
        self.ends = self._tensor(ends)
        self.starts = self._tensor(starts)
        self.prompt_ends = self._tensor([width] * len(prompts))
        self.rows = torch.tensor(range(len(prompts)) if rows is None else rows, dtype=torch.int64)
        # Integers of the host beside the tensors: reading a row must not wait for the device.
        self._spans = [(start, width) for start in starts]
        self.nearest_end = min(ends)
        self._first_prompt_end = width
        self._buffer = self._tensor(padded)
        self._room = width  # columns of the buffer
        self.last_ids = self._buffer.select(1, width - 1)
        self.last_logits: torch.Tensor | None = None
        self.finished = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)

    def _tensor(self, values: object) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._spans)

    @property
    def token_ids(self) -> torch.Tensor:
        """All ids so far, int64 `[batch, length]`; columns before `starts` are padding."""
        return self._buffer.narrow(1, 0, self.length)

    def since(self, column: int) -> torch.Tensor:
        """The columns from `column` on, int64 `[batch, length - column]`."""
        return self._buffer[:, column : self.length]

    @property
    def most_generated(self) -> int:
        """How many tokens the row has generated that has most of them; known on the host."""
        return self.length - self._first_prompt_end

    @property
    def is_token(self) -> torch.Tensor:
        """Which places hold a token and not padding, bool `[batch, length]`."""
        columns = torch.arange(self.length, device=self.device)
        return columns >= self.starts[:, None]

    @property
    def num_generated(self) -> torch.Tensor:
        """How many tokens each row has generated, int64 `[batch]`."""
        return (self.prompt_ends - self.length).neg()  # several times faster than int - tensor

    @property
    def num_tokens(self) -> torch.Tensor:
        """How many tokens each row has, its prompt included, int64 `[batch]`."""
        return (self.starts - self.length).neg()

    def row(self, i: int) -> torch.Tensor:
        """All ids of row `i`, without padding, int64 `[tokens]`."""
        return self._buffer[i, self._spans[i][0] : self.length]

    def prompt_row(self, i: int) -> torch.Tensor:
        """The prompt ids of row `i`."""
        start, end = self._spans[i]
        return self._buffer[i, start:end]

    def generated_row(self, i: int) -> torch.Tensor:
        """The ids that row `i` has generated."""
        return self._buffer[i, self._spans[i][1] : self.length]

    def append(self, next_ids: torch.Tensor, logits: torch.Tensor | None = None) -> None:
        """Add one column.

        Args:
            next_ids: the next id of every row, int64 `[batch]`.
            logits: what the model gave for them, for the stop criteria, `[batch, vocab]`.
        """
        if self.length == self._room:
            self._grow()
        self._buffer.select(1, self.length).copy_(next_ids)
        self.length += 1
        self.last_ids = next_ids
        self.last_logits = logits
        self.rng.advance()

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        index = self._tensor(indices)
        self._buffer = self._buffer[index]
        self.ends = self.ends[index]
        self.starts = self.starts[index]
        self.prompt_ends = self.prompt_ends[index]
        self.rows = self.rows[index.to(self.rows.device)]
        self.last_ids = self.last_ids[index]
        self.last_logits = None  # it has done its duty, and is large
        self.finished = self.finished[index]
        self.nearest_end = int(self.ends.min())
        self._spans = [self._spans[i] for i in indices]
        self._first_prompt_end = min(end for _, end in self._spans)
        self.rng.reorder(indices)

    def _grow(self) -> None:
        """Twice the room, so that appending costs the same at any length."""
        grown = self._buffer.new_zeros((len(self), max(2 * self._room, 64)))
        grown[:, : self.length] = self._buffer
        self._buffer, self._room = grown, grown.shape[1]
