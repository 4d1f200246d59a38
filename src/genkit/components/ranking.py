"""What truncations have in common: probabilities, entropy, and the first tokens of an order.

Sums are float64. A token that is forbidden has probability 0. A row in which every token is
forbidden has NaN for its probabilities, and NaN is neither below nor above any limit.
"""

from __future__ import annotations

from typing import Literal

import torch

Ties = Literal["by_id", "keep"]
"""What becomes of tokens that equal the last one kept: lower ids go first, or all of them stay."""


def weights(logits: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """What probabilities are proportional to: ``exp(l - l_max)``, float64.

    Unlike probabilities they do not depend on the sum of a row: those of equal logits add up
    without rounding, and a part of a row has the weights that it has within the row.

    Args:
        logits: `[batch, any]`.
        largest: the largest logit of each row, `[batch, 1]`.
    """
    return (logits.double() - largest).exp_()


def probabilities(logits: torch.Tensor) -> torch.Tensor:
    """The softmax of each row, float64 `[batch, vocab]`."""
    return logits.softmax(-1, dtype=torch.float64)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """The entropy of each row in nats, `[batch, 1]`."""
    contributions: torch.Tensor = torch.special.entr(probs)  # -p ln p, and 0 where p is 0
    return contributions.sum(-1, keepdim=True)


def beyond(
    scores: torch.Tensor, ranked: torch.Tensor, count: torch.Tensor | int, ties: Ties = "by_id"
) -> torch.Tensor:
    """Which tokens are not among the first `count` of their row, bool `[batch, vocab]`.

    The order is that of the scores, the largest first; of equal ones the lower id comes first.

    Args:
        scores: `[batch, vocab]`.
        ranked: the largest scores in descending order, `[batch, n]`.
        count: how many are kept, from 1 to n; one for all rows, or int64 `[batch, 1]`.
        ties: what becomes of tokens that equal the last of the first `count`.
    """
    if isinstance(count, int):
        last = ranked.narrow(-1, count - 1, 1)
    else:
        last = ranked.gather(-1, count - 1)
    dropped = scores < last
    if ties == "keep" or _as_many(~dropped, count):
        return dropped
    equal = scores == last
    room = count - (ranked > last).sum(-1, keepdim=True)
    return dropped | (equal & (equal.cumsum(-1) > room))


def _as_many(kept: torch.Tensor, count: torch.Tensor | int) -> bool:
    """Whether each row keeps just `count` tokens, when none keeps less.

    Without ties at the border it does. A GPU is not asked, which would wait for it.
    """
    if kept.device.type != "cpu":
        return False
    total = count * len(kept) if isinstance(count, int) else int(count.sum())
    return int(kept.count_nonzero()) == total


def spared(
    dropped: torch.Tensor, scores: torch.Tensor, min_keep: int, ties: Ties = "by_id"
) -> torch.Tensor:
    """What is left of `dropped` when the first `min_keep` tokens of each row are kept anyway."""
    count = min(min_keep, scores.shape[-1])
    return dropped & beyond(scores, scores.topk(count, dim=-1).values, count, ties)
