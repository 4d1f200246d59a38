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
    stay as they are; a step that is asked for twice changes them once.
    """

    def __init__(self, first: torch.Tensor) -> None:
        super().__init__(first)
        self._draw: _Draw | None = None

    def at(self, state: GenerationState) -> torch.Tensor:
        """The numbers before the token that is to be drawn now, `[batch, n]`."""
        draw = self._draw
        if draw is not None and state.length > draw.length:
            has_come = (state.last_ids == draw.ids).unsqueeze(-1)
            self.push(torch.where(has_come, draw.numbers, self.last))
            self._draw = None
        return self.last

    def drawn(self, state: GenerationState, ids: torch.Tensor, numbers: torch.Tensor) -> None:
        """The tokens drawn now, and the numbers if they come."""
        self._draw = _Draw(state.length, ids, numbers)

    def reorder(self, indices: Sequence[int]) -> None:
        super().reorder(indices)
        if self._draw is not None:
            index = torch.tensor(indices, device=self._draw.ids.device)
            length, ids, numbers = self._draw
            self._draw = _Draw(length, ids[index], numbers[index])

    def rewind(self, n: int) -> None:
        if n and self._draw is not None:  # the last token is the one drawn
            self._draw = None
            n -= 1
        super().rewind(n)
