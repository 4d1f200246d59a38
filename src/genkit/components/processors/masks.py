"""Token ids that a part forbids, as tensors, and what bound parts without row state share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from genkit.components.base import check_token_ids
from genkit.core.run import Run

__all__ = ["Rowless", "end_tokens", "forbid", "token_tensor"]


class Rowless:
    """Base of what `bind` makes where it holds something of the run, but nothing of a row."""

    def __init__(self, name: str) -> None:
        self.name = name

    def reorder(self, indices: Sequence[int]) -> None:
        """It holds nothing of a row."""

    def rewind(self, n: int) -> None:
        """It holds no token."""


def token_tensor(part: str, token_ids: Iterable[int], run: Run) -> torch.Tensor:
    """Distinct ids in ascending order, int64 `[ids]`, on the run's device.

    Raises:
        InputError: the model does not have one of them.
    """
    distinct = sorted(set(token_ids))
    check_token_ids(part, distinct, run.vocab_size)
    return torch.tensor(distinct, dtype=torch.int64, device=run.device)


def end_tokens(part: str, others: Iterable[int], run: Run) -> torch.Tensor:
    """The model's own end tokens and others; one of its own that has no logit is left out.

    Raises:
        InputError: the model does not have one of the others.
    """
    own = {token_id for token_id in run.eos_token_ids if token_id < run.vocab_size}
    return token_tensor(part, own.union(others), run)


def forbid(
    logits: torch.Tensor, token_ids: torch.Tensor, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """The logits with some tokens at -inf.

    Args:
        logits: `[batch, vocab]`.
        token_ids: distinct ids, int64 `[ids]`.
        rows: in which rows, bool `[batch]`; by default in all.
    """
    if rows is None:
        return logits.index_fill(-1, token_ids, -math.inf)
    chosen = logits.index_select(-1, token_ids).masked_fill(rows.unsqueeze(-1), -math.inf)
    return logits.index_copy(-1, token_ids, chosen)
