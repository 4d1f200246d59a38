"""How often each token came, and penalties that go by that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Self

import numpy as np
import torch

from genkit.components.history import RowMemories, Scope
from genkit.core.run import Run
from genkit.core.state import GenerationState

__all__ = ["Change", "CountPenalty", "CountedText", "DeviceCounts", "HostCounts", "number"]

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(logits, counts) -> logits`` for tokens that came, element by element and in any shape."""

_NEVER = 2**62  # a column that no text reaches


class CountPenalty:
    """What `bind` makes of a part that changes the logits of tokens that came.

    Args:
        name: of the part.
        change: what it does to them.
        run: the run.
        scope: which tokens count.
        window: only the last so many of them; None: all.
    """

    def __init__(
        self,
        name: str,
        change: Change,
        run: Run,
        scope: Scope = "all",
        window: int | None = None,
    ) -> None:
        self.name = name
        self._change = change
        counts = HostCounts if run.device.type == "cpu" else DeviceCounts
        self._counts = counts(run, scope, window)
        self.reorder = self._counts.reorder
        self.rewind = self._counts.rewind

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self._counts.look(state)
        return self._counts.apply(logits, self._change)


def number(value: float, logits: torch.Tensor) -> torch.Tensor:
    """A number as the logits have them, `[]`: arithmetic with it takes half as long."""
    return _number(value, logits.dtype, logits.device)


@lru_cache(maxsize=64)
def _number(value: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


class HostCounts:
    """The counts of the tokens that came, and of no others: for logits on the CPU.

    A step changes the logits of these tokens alone, which are few beside the vocabulary.

    Args:
        run, scope, window: as for `CountPenalty`.
    """

    def __init__(self, run: Run, scope: Scope = "all", window: int | None = None) -> None:
        self._memories = RowMemories(
            [CountedText(run.vocab_size, window) for _ in run.prompts], scope
        )
        self.look = self._memories.look
        self.reorder = self._memories.reorder
        self.rewind = self._memories.rewind

    def apply(self, logits: torch.Tensor, change: Change) -> torch.Tensor:
        """The logits `[batch, vocab]`, with those changed whose tokens came."""
        rows, vocab_size = self._memories.rows, logits.shape[1]
        if len(rows) == 1:
            places, counts = rows[0].ids, rows[0].counts
        else:
            places = np.concatenate([row.ids + i * vocab_size for i, row in enumerate(rows)])
            counts = np.concatenate([row.counts for row in rows])
        out = logits.detach().clone(memory_format=torch.contiguous_format)
        values = out.view(-1).numpy()  # the same memory; numpy finds single places in half the time
        values[places] = change(torch.from_numpy(values[places]), torch.from_numpy(counts)).numpy()
        return out


class CountedText:
    """How often each token came in one text.

    Args:
        vocab_size: tokens with this id or a higher one have no logit, and are not counted; some
            models read more tokens than they write.
        window: only the last so many tokens count; None: all.
    """

    def __init__(self, vocab_size: int, window: int | None = None) -> None:
        self._vocab_size = vocab_size
        self._window = window
        self._text: list[int] = []
        self._places: dict[int, int] = {}  # where in the arrays an id stands
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.int32)

    @property
    def ids(self) -> np.ndarray:
        """The different tokens that came, int64 `[n]`; good until the next change."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> np.ndarray:
        """How often each of them did, int32 `[n]`."""
        return self._counts[: len(self._places)]

    def push(self, token_id: int) -> None:
        """Add a token to the text."""
        self._text.append(token_id)
        self._add(token_id)
        if self._window is not None and len(self._text) > self._window:
            self._remove(self._text[-self._window - 1])

    def pop(self) -> None:
        """Take back the last token."""
        self._remove(self._text.pop())
        if self._window is not None and len(self._text) >= self._window:
            self._add(self._text[-self._window])

    def copy(self) -> Self:
        """An independent one of the same text."""
        other = type(self)(self._vocab_size, self._window)
        other._text, other._places = self._text.copy(), self._places.copy()
        other._ids, other._counts = self._ids.copy(), self._counts.copy()
        return other

    def _add(self, token_id: int) -> None:
        place = self._places.get(token_id)
        if place is not None:
            self._counts[place] += 1
            return
        if token_id >= self._vocab_size:
            return
        place = self._places[token_id] = len(self._places)
        if place == len(self._ids):  # twice the room
            self._ids, self._counts = np.tile(self._ids, 2), np.tile(self._counts, 2)
        self._ids[place], self._counts[place] = token_id, 1

    def _remove(self, token_id: int) -> None:
        place = self._places.get(token_id)
        if place is None:
            return
        if self._counts[place] > 1:
            self._counts[place] -= 1
            return
        del self._places[token_id]
        last = len(self._places)
        if place < last:  # the last one takes its place
            moved = int(self._ids[last])
            self._places[moved] = place
            self._ids[place], self._counts[place] = moved, self._counts[last]


class DeviceCounts:
    """The counts of all tokens, where the logits are: nothing waits for the device.

    Args:
        run, scope, window: as for `CountPenalty`.
    """

    def __init__(self, run: Run, scope: Scope = "all", window: int | None = None) -> None:
        # One column more, for all tokens that have no logit.
        self._counts = torch.zeros(
            (len(run), run.vocab_size + 1), dtype=torch.int32, device=run.device
        )
        self._scope = scope
        self._window = window
        self._ids = torch.zeros((len(run), 0), dtype=torch.int64, device=run.device)
        self._length = self._prompt_end = self._num_begun = 0
        self._bounds: torch.Tensor  # the first column that counts, and the end of them, [batch, 2]

    @property
    def counts(self) -> torch.Tensor:
        """How often each token came, int32 `[batch, vocab]`."""
        return self._counts[:, :-1]

    def look(self, state: GenerationState) -> None:
        """Count the tokens that came since the last look."""
        if self._length == 0:
            self._begin(state)
        elif self._scope != "prompt":
            self._go(state)

    def apply(self, logits: torch.Tensor, change: Change) -> torch.Tensor:
        """The logits `[batch, vocab]`, with those changed whose tokens came."""
        return torch.where(self.counts > 0, change(logits, self.counts), logits)

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        index = torch.tensor(indices, device=self._counts.device)
        self._counts = self._counts[index]
        self._ids = self._ids[index]
        if self._length:
            self._bounds = self._bounds[index]

    def rewind(self, n: int) -> None:
        """Forget the last `n` tokens of every row; see `RowMemories.rewind`."""
        length = max(self._prompt_end, self._length - n)
        if self._scope != "prompt":
            self._move(self._length, length)
        self._length = length

    def _begin(self, state: GenerationState) -> None:
        """Count what is there at the first look."""
        begin = state.prompt_ends if self._scope == "output" else state.starts
        end = state.prompt_ends if self._scope == "prompt" else torch.full_like(begin, _NEVER)
        if self._scope == "prompt" and self._window is not None:
            begin = torch.maximum(begin, end - self._window)
        self._bounds = torch.stack((begin, end), dim=1)
        self._num_begun = state.length
        self._prompt_end = state.length - state.most_generated
        self._go(state)

    def _go(self, state: GenerationState) -> None:
        """Note the ids that came, since those that leave the window must be known, and count."""
        if self._ids.shape[1] < state.length:  # twice the room: the cost is the same at any length
            grown = self._ids.new_zeros((len(state), 2 * state.length))
            grown[:, : self._length] = self._ids[:, : self._length]
            self._ids = grown
        new = state.since(self._length).clamp(max=self._counts.shape[1] - 1)
        self._ids[:, self._length : state.length] = new
        self._move(self._length, state.length)
        self._length = state.length

    def _move(self, before: int, after: int) -> None:
        """Count as the text goes from one number of columns to another, forth or back."""
        old, new = self._span(before), self._span(after)
        for (begin, end), (other_begin, other_end), sign in ((new, old, 1), (old, new, -1)):
            self._add(begin, min(end, other_begin), sign)
            self._add(max(begin, other_end), end, sign)

    def _span(self, length: int) -> tuple[int, int]:
        """The columns that are in the window of a text of so many."""
        if self._window is None or self._scope == "prompt":
            return 0, length
        return max(0, length - self._window), length

    def _add(self, begin: int, end: int, sign: int) -> None:
        """Count the tokens of some columns, or take them out of the count."""
        if begin >= end:
            return
        ids = self._ids[:, begin:end]
        weights = self._counts.new_full((1, 1), sign).expand(ids.shape)
        if begin < self._num_begun:  # not all of these count
            columns = torch.arange(begin, end, device=ids.device)
            weights = weights * ((columns >= self._bounds[:, :1]) & (columns < self._bounds[:, 1:]))
        self._counts.scatter_add_(1, ids, weights)
