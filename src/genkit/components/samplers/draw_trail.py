"""Numbers that a draw changes, once the token drawn has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from genkit.components.trail import Trail
from genkit.core.state import GenerationState


class _Draw(NamedTuple):
    length: int  # columns of the state when it was drawn
    ids: torch.Tensor  # int64 [batch]
    numbers: torch.Tensor  # what they change the numbers to, [batch, n]


class DrawTrail(Trail):
    """The numbers of each row, changed by each token that was drawn and has then come.

    Whether it has come shows in the next step. Where another token came in its place, the numbers
    stay as they are; a step that is asked for twice changes them once. Tokens that no draw was made
    for change nothing.
    """

    def __init__(self, first: torch.Tensor) -> None:
        super().__init__(first)
        self._draw: _Draw | None = None
        self._begin: int | None = None  # columns of the state at the first draw

    def at(self, state: GenerationState) -> torch.Tensor:
        """The numbers before the token that is to be drawn now, `[batch, n]`."""
        draw = self._draw
        length = self._first_length(state) + self._size - 1  # columns that are looked at
        if draw is not None and state.length > draw.length:
            has_come = (state.token_ids[:, draw.length] == draw.ids).unsqueeze(-1)
            self.push(torch.where(has_come, draw.numbers, self.last))
            self._draw = None
            length += 1
        for _ in range(state.length - length):
            self.push(self.last)
        if state.length < length:  # the draw that was made last had not come when some were taken
            super().rewind(length - state.length)
        return self.last

    def drawn(self, state: GenerationState, ids: torch.Tensor, numbers: torch.Tensor) -> None:
        """The tokens drawn now, and the numbers if they come."""
        self._first_length(state)
        self._draw = _Draw(state.length, ids, numbers)

    def reorder(self, indices: Sequence[int]) -> None:
        super().reorder(indices)
        if self._draw is not None:
            index = torch.tensor(indices, device=self._draw.ids.device)
            length, ids, numbers = self._draw
            self._draw = _Draw(length, ids[index], numbers[index])

    def rewind(self, n: int) -> None:
        if n and self._draw is not None:
            # The last token is the one drawn, or else the next step takes back one more.
            self._draw = None
            n -= 1
        super().rewind(n)

    def _first_length(self, state: GenerationState) -> int:
        if self._begin is None:
            self._begin = state.length
        return self._begin
