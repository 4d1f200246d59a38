"""The tokens of a row that a truncation may keep, found without sorting the row."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch

from genkit.components.ranking import weights

_BLOCK = 256
"""How many tokens share a maximum: where that is too small, none of them is a candidate."""

ROUNDING = 1e-12
"""More than the part by which sums of the same weights in another order differ."""

_BINS_A_NAT, _NUM_BINS = 8, 1024
"""How finely logits are sorted into bins, and how many there are."""


class Candidates(NamedTuple):
    """Some tokens of a row: ids in ascending order, int64 `[n]`, and logits `[1, n]`."""

    ids: torch.Tensor
    logits: torch.Tensor


class Row:
    """One row of logits on the CPU, `[1, vocab]`.

    Attributes:
        logits: the row.
        size: of the vocabulary.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        self.size = logits.shape[1]
        missing = -self.size % _BLOCK
        if missing:
            logits = torch.nn.functional.pad(logits, (0, missing), value=-math.inf)
        self._blocks = logits.reshape(-1, _BLOCK)
        self._maxima = self._blocks.amax(-1)

    @cached_property
    def largest(self) -> torch.Tensor:
        """The largest logit, a scalar."""
        return self._maxima.amax()

    @cached_property
    def total(self) -> torch.Tensor:
        """The sum of all weights, float64 `[1, 1]`."""
        return self._weights.sum(-1, keepdim=True)

    @cached_property
    def _weights(self) -> torch.Tensor:
        return weights(self.logits, self.largest)

    def at_least(self, threshold: torch.Tensor) -> Candidates:
        """Every allowed token whose logit is no less than a threshold."""
        reaches = torch.gt if bool(threshold == -math.inf) else torch.ge
        hit = reaches(self._maxima, threshold).nonzero()[:, 0]
        blocks = self._blocks.index_select(0, hit).flatten()
        place = reaches(blocks, threshold).nonzero()[:, 0]
        ids = hit.index_select(0, place // _BLOCK).mul_(_BLOCK).add_(place % _BLOCK)
        return Candidates(ids, blocks.index_select(0, place)[None])

    def kth_largest(self, k: int) -> torch.Tensor:
        """The k-th largest logit, a scalar; k is at most the size of the vocabulary.

        The k largest lie in the k blocks with the largest maxima: these alone have k tokens that
        are no smaller than any outside.
        """
        num_blocks = min(k, len(self._maxima))
        blocks = self._blocks.index_select(0, self._maxima.topk(num_blocks).indices)
        return blocks.flatten().topk(k).values[-1]

    def above_which_lies(self, weight: torch.Tensor) -> torch.Tensor:
        """A logit above which tokens have this weight together, and not much more; a scalar."""
        depth = (self.largest - self.logits[0]).mul_(_BINS_A_NAT).clamp_(max=_NUM_BINS - 1)
        bins = torch.bincount(depth.int(), self._weights[0], minlength=_NUM_BINS)
        # Two bins more: one that holds the border, and one for rounding.
        return self.largest - (int((bins.cumsum(0) < weight[0]).sum()) + 2) / _BINS_A_NAT
