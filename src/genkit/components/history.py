"""What parts remember of each row's tokens, brought up to date token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Literal, Protocol, Self, TypeVar

from genkit.core.state import GenerationState

__all__ = ["Memory", "RowMemories", "Scope"]

Scope = Literal["all", "output", "prompt"]
"""Which tokens of a row count: prompt and answer, the answer alone, or the prompt alone."""


class Memory(Protocol):
    """What one row remembers, on the host."""

    def push(self, token_id: int) -> None:
        """Take one more id."""

    def pop(self) -> None:
        """Forget the last one."""

    def copy(self) -> Self:
        """An independent one that remembers the same."""


M = TypeVar("M", bound=Memory)


class RowMemories(Generic[M]):
    """One memory a row, given each id once, so that a long text costs no more than a short one.

    Padding is never given.

    Args:
        memories: one for each row, still empty.
        scope: which tokens they are given.

    Attributes:
        rows: the memory of each row.
    """

    def __init__(self, memories: Sequence[M], scope: Scope = "all") -> None:
        self.rows = list(memories)
        self._scope = scope
        self._length = self._prompt_end = 0  # in columns

    def look(self, state: GenerationState) -> None:
        """Give them the ids that came since the last look."""
        if self._length == 0:
            self._begin(state)
        elif self._scope != "prompt":
            if state.length == self._length + 1:  # the usual case, in which it is quicker
                for memory, token_id in zip(self.rows, state.last_ids.tolist(), strict=True):
                    memory.push(token_id)
            else:
                self._push(state.since(self._length).tolist())
        self._length = state.length

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row that is taken twice is copied."""
        self.rows = [
            self.rows[i].copy() if i in indices[:place] else self.rows[i]
            for place, i in enumerate(indices)
        ]

    def rewind(self, n: int) -> None:
        """Forget the last `n` tokens of every row.

        Some of them may not have been looked at yet. Then too many are forgotten, and those that
        are still there will be looked at again. The prompt stays.
        """
        length = max(self._prompt_end, self._length - n)
        if self._scope != "prompt":
            for memory in self.rows:
                for _ in range(self._length - length):
                    memory.pop()
        self._length = length

    def _begin(self, state: GenerationState) -> None:
        self._prompt_end = state.length - state.most_generated
        row = {"all": state.row, "output": state.generated_row, "prompt": state.prompt_row}
        self._push([row[self._scope](i).tolist() for i in range(len(state))])

    def _push(self, rows: Sequence[Sequence[int]]) -> None:
        for memory, token_ids in zip(self.rows, rows, strict=True):
            for token_id in token_ids:
                memory.push(token_id)
