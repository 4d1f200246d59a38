"""The tokens of a row that a truncation may keep, found without sorting the row.

What is found is small, and numpy takes a fraction of the time that torch takes for small arrays.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch

from genkit.components.ranking import weights

__all__ = ["Candidates", "Row", "rows_of"]

_BLOCK = 256
"""How many tokens share a maximum: where that is too small, none of them is a candidate."""

_SMALL = 2048
"""Up to this size of a vocabulary every token is a candidate: a search would take as long."""

_BINS_A_NAT, _NUM_BINS = 32, 4096
"""How finely logits are sorted into bins, and how many there are."""

_SAMPLED = 16
"""One token in so many is looked at to guess where a sum of weights is reached."""

_SLACK = 1e-6
"""More than the part by which logits with the same float32 quotient differ."""


class Candidates(NamedTuple):
    """Some tokens of a row: ids in ascending order, int64 `[n]`, and logits `[n]`."""

    ids: np.ndarray
    logits: np.ndarray


class Row:
    """One row of logits, and what truncations ask about it.

    Args:
        logits: `[vocab]`.
        maxima: the largest logit of each block of tokens, `[any]`.
        divisor: a temperature. All answers are about the logits divided by it, of which only those
            of candidates are computed.

    Attributes:
        size: of the vocabulary.
        largest: the largest logit, a scalar in the precision of the logits.
    """

    def __init__(self, logits: np.ndarray, maxima: np.ndarray, divisor: float = 1.0) -> None:
        self._logits, self._maxima, self._divisor = logits, maxima, divisor
        self.size = len(logits)
        self._largest = maxima.max()
        self.largest = self._largest / divisor

    @cached_property
    def total(self) -> float:
        """The sum of the weights of all tokens."""
        logits = torch.from_numpy(self._divided(self._logits))
        return float(weights(logits, torch.tensor(self.largest)).sum())

    @cached_property
    def rough_total(self) -> float:
        """The sum of the rough weights of all tokens."""
        return float(torch.from_numpy(self._rough_weights).sum(dtype=torch.float64))

    def rough_weight(self, found: Candidates) -> float:
        """The sum of the rough weights of some tokens."""
        return float(self._rough_weights[found.ids].sum(dtype=np.float64))

    @cached_property
    def _rough_weights(self) -> np.ndarray:
        """The weights of all tokens in the precision of the logits, `[vocab]`."""
        below = torch.from_numpy(self._logits) - self._largest.item()
        if self._divisor != 1:
            below.div_(self._divisor)
        rough: np.ndarray = below.exp_().numpy()
        return rough

    def reached_by(self, k: int) -> np.floating:
        """A logit that k tokens reach, and often not many more, a scalar.

        Every block has a token that reaches its maximum, so that the k-th largest maximum will do.
        """
        values = self._maxima if k <= len(self._maxima) else self._logits
        place = len(values) - k
        kth: np.floating = np.partition(values, place)[place] / self._divisor
        return kth

    def above_which_lies(self, share: float, *, guess: bool) -> np.floating:
        """A logit above which the tokens have a share of the weight of the row, a scalar.

        Args:
            share: from 0 to 1.
            guess: whether to look at a sample of the tokens, which may be misleading.
        """
        sample = slice(None, None, _SAMPLED if guess else 1)
        depths = (self._largest - self._logits[sample]) * (_BINS_A_NAT / self._divisor)
        places = np.minimum(depths, _NUM_BINS - 1).astype(np.int64)
        running = np.bincount(places, self._rough_weights[sample], _NUM_BINS).cumsum()
        # Two bins more: one that holds the border, and one for rounding.
        num_bins = int(running.searchsorted(share * running[-1])) + 2
        border: np.floating = self.largest - num_bins / _BINS_A_NAT
        return border

    def everything(self) -> Candidates | None:
        """All tokens as candidates, forbidden ones too; None where there are too many."""
        if self.size > _SMALL:
            return None
        return Candidates(_all_ids(self.size), self._divided(self._logits))

    def at_least(self, threshold: np.floating) -> Candidates:
        """Every allowed token whose logit is no less than a threshold, or little less.

        Args:
            threshold: a scalar in the precision of the logits.
        """
        bar = threshold * self._divisor
        if self._divisor != 1:  # what is a little less may round to the same quotient
            smallest = np.finfo(bar.dtype).tiny * max(self._divisor, 1.0)
            bar -= max(abs(bar), smallest) * _SLACK
        ids = self._reaching(bar)
        return Candidates(ids, self._divided(self._logits[ids]))

    def _divided(self, logits: np.ndarray) -> np.ndarray:
        return logits if self._divisor == 1 else logits / self._divisor

    def _reaching(self, bar: np.floating) -> np.ndarray:
        """The ids of the allowed tokens with at least some logit before the division."""
        if np.isneginf(bar):
            return np.flatnonzero(self._logits > bar)
        hit = np.flatnonzero(self._maxima >= bar)
        if self.size <= _SMALL or 4 * len(hit) > len(self._maxima):
            return np.flatnonzero(self._logits >= bar)
        num_blocks = self.size // _BLOCK
        blocks = hit[: hit.searchsorted(num_blocks)]
        inside = self._logits[: num_blocks * _BLOCK].reshape(-1, _BLOCK)[blocks]
        place = np.flatnonzero(inside >= bar)
        ids: np.ndarray = blocks[place // _BLOCK] * _BLOCK + place % _BLOCK
        if len(blocks) < len(hit):
            behind = hit[len(blocks) :] + num_blocks * (_BLOCK - 1)
            ids = np.concatenate((ids, behind))
        return ids


def rows_of(logits: np.ndarray, divisor: float = 1.0) -> list[Row]:
    """The rows of logits `[batch, vocab]`, divided by a temperature."""
    return [Row(*row, divisor) for row in zip(logits, _maxima(logits), strict=True)]


def _maxima(logits: np.ndarray) -> np.ndarray:
    """The largest logit of each block, `[batch, any]`."""
    batch, size = logits.shape
    if size <= _SMALL:
        return logits
    end = size // _BLOCK * _BLOCK
    blocks = torch.from_numpy(logits[:, :end]).reshape(batch, -1, _BLOCK)
    maxima: np.ndarray = blocks.amax(-1).numpy()  # numpy takes twice as long
    # Behind the last whole block each token is a block of its own.
    return maxima if end == size else np.concatenate((maxima, logits[:, end:]), axis=-1)


@lru_cache(maxsize=4)
def _all_ids(size: int) -> np.ndarray:
    return np.arange(size)
