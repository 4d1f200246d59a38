"""Numbers that each row has after every token, so that tokens can be taken back."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Trail:
    """The numbers of each row, after each token.

    Args:
        first: those before the first token, `[batch, n]`.
    """

    def __init__(self, first: torch.Tensor) -> None:
        self._held = first.unsqueeze(0)  # [room, batch, n]
        self._size = 1  # how much of the room is in use

    @property
    def last(self) -> torch.Tensor:
        """The numbers after the last token, `[batch, n]`; good until the next change."""
        return self._held[self._size - 1]

    def push(self, numbers: torch.Tensor) -> None:
        """The numbers after one more token, `[batch, n]`."""
        if self._size == len(self._held):  # twice the room: the cost is the same at any length
            self._held = torch.cat((self._held, torch.empty_like(self._held)))
        self._held[self._size] = numbers
        self._size += 1

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        self._held = self._held[:, torch.tensor(indices, device=self._held.device)]

    def rewind(self, n: int) -> None:
        """Forget the last `n` tokens."""
        self._size -= n
