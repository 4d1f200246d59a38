"""Which tokens would complete a sequence of n tokens that was there already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

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
        # By the first n - 1 ids of a sequence: the last ids, each once. Tuples, so that a copy of
        # the mapping is independent.
        self._last_ids: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._added: list[bool] = []  # for each id, whether it made a new sequence

    def push(self, token_id: int) -> None:
        """Add a token to the text."""
        context = self.context()
        known = self._last_ids.get(context, ())
        is_new = len(context) == self._width and token_id not in known
        if is_new:
            self._last_ids[context] = (*known, token_id)
        self._ids.append(token_id)
        self._added.append(is_new)

    def pop(self) -> None:
        """Take back the last token."""
        self._ids.pop()
        if self._added.pop():
            context = self.context()
            self._last_ids[context] = self._last_ids[context][:-1]

    def copy(self) -> Self:
        """An independent one of the same text."""
        other = type(self)(self._width + 1)
        other._ids, other._added = self._ids.copy(), self._added.copy()
        other._last_ids = self._last_ids.copy()
        return other

    def context(self) -> tuple[int, ...]:
        """The last n - 1 tokens of the text, or all where it has fewer."""
        return tuple(self._ids[-self._width :])

    def after(self, context: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens that followed these n - 1 tokens."""
        return self._last_ids.get(context, ())


def forbid_in_rows(logits: torch.Tensor, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
    """The logits `[batch, vocab]` with the given ids of each row at -inf."""
    vocab_size = logits.shape[1]
    places = [i * vocab_size + token_id for i, ids in enumerate(token_ids) for token_id in ids]
    if not places:
        return logits
    out = logits.clone(memory_format=torch.contiguous_format)
    out.view(-1).index_fill_(0, torch.tensor(places, device=out.device), -math.inf)
    return out
