"""Which tokens would complete a sequence of n tokens that was there already."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch

__all__ = ["NGrams", "forbid_in_rows"]


class NGrams:
    """The sequences of `n` tokens in a text that grows token by token.

    Args:
        n: their length, at least 2.
    """

    def __init__(self, n: int) -> None:
        self._width = n - 1
        self._ids: list[int] = []
        # By the first n - 1 ids of a sequence: the last ids, each once. Arrays, from which a tensor
        # is made without a look at each id.
        self._last_ids: dict[tuple[int, ...], array[int]] = {}
        self._known: set[tuple[int, ...]] = set()
        self._added: list[bool] = []  # for each id, whether it made a new sequence

    def push(self, token_id: int) -> None:
        """Add a token to the text."""
        context = self.context()
        sequence = (*context, token_id)
        is_new = len(context) == self._width and sequence not in self._known
        if is_new:
            self._known.add(sequence)
            self._last_ids.setdefault(context, array("q")).append(token_id)
        self._ids.append(token_id)
        self._added.append(is_new)

    def pop(self) -> None:
        """Take back the last token."""
        token_id = self._ids.pop()
        if self._added.pop():
            context = self.context()
            self._known.remove((*context, token_id))
            self._last_ids[context].pop()

    def copy(self) -> Self:
        """An independent one of the same text."""
        other = type(self)(self._width + 1)
        other._ids, other._added = self._ids.copy(), self._added.copy()
        other._last_ids = {context: ids[:] for context, ids in self._last_ids.items()}
        other._known = self._known.copy()
        return other

    def context(self) -> tuple[int, ...]:
        """The last n - 1 tokens of the text, or all where it has fewer."""
        return tuple(self._ids[-self._width :])

    def after(self, context: tuple[int, ...]) -> array[int]:
        """The tokens that followed these n - 1 tokens, not to be written to."""
        return self._last_ids.get(context, _NOTHING)


_NOTHING: array[int] = array("q")


def forbid_in_rows(logits: torch.Tensor, token_ids: Sequence[array[int]]) -> torch.Tensor:
    """The logits `[batch, vocab]` with the given ids of each row at -inf."""
    if not any(token_ids):
        return logits
    out = logits.clone(memory_format=torch.contiguous_format)
    for row, ids in zip(out, token_ids, strict=True):
        if ids:
            # A copy: an array whose memory is lent cannot grow.
            row.index_fill_(0, torch.tensor(np.array(ids), device=out.device), -math.inf)
    return out
