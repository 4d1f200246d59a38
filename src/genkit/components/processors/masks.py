"""Token ids that a part forbids or forces, as tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch

from genkit.components.base import check_token_ids
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState

__all__ = ["NoEndYet", "end_tokens", "forbid", "forced", "token_tensor"]


def token_tensor(part: str, token_ids: Iterable[int], run: Run) -> torch.Tensor:
    """Distinct ids in ascending order, int64 `[ids]`, on the run's device.

    Raises:
        InputError: the model does not have one of them.
    """
    distinct = sorted(set(token_ids))
    check_token_ids(part, distinct, run.vocab_size)
    return torch.tensor(distinct, dtype=torch.int64, device=run.device)


def end_tokens(
    part: str, run: Run, others: Iterable[int] = (), instead: Iterable[int] | None = None
) -> torch.Tensor:
    """The model's own end tokens and others; one of its own that has no logit is left out.

    Args:
        part: what asks, for errors.
        run: the run.
        others: those besides the model's own.
        instead: those in place of the model's own; None: its own.

    Raises:
        InputError: the model does not have one of those that are given.
    """
    if instead is not None:
        return token_tensor(part, instead, run)
    own = {token_id for token_id in run.eos_token_ids if token_id < run.vocab_size}
    return token_tensor(part, own.union(others), run)


def forced(token_ids: torch.Tensor, run: Run) -> torch.Tensor:
    """Logits that leave these ids alone, all alike: 0, and -inf for all others, `[vocab]`."""
    row = torch.full((run.vocab_size,), -math.inf, device=run.device)
    return row.index_fill_(0, token_ids, 0.0)


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


class NoEndYet(Rowless):
    """Forbids end tokens in rows that are too short.

    Args:
        part: the name of the part.
        end_ids: what is forbidden, int64 `[ids]`.
        is_short: which rows are, bool `[batch]`.
    """

    def __init__(
        self, part: str, end_ids: torch.Tensor, is_short: Callable[[GenerationState], torch.Tensor]
    ) -> None:
        super().__init__(part)
        self.end_ids = end_ids
        self.is_short = is_short

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the end tokens of those rows at -inf, `[batch, vocab]`."""
        return forbid(logits, self.end_ids, self.is_short(state))
