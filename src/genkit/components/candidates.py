"""The tokens of each row that a truncation may keep, found without sorting the rows.

What is found is small, and numpy takes a fraction of the time that torch takes for small arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from genkit.components.ranking import weights

__all__ = ["Candidates", "Rows"]

_BLOCK = 256
"""How many tokens share a maximum: where that is too small, none of them is a candidate."""

_BINS_A_NAT, _NUM_BINS = 32, 4096
"""How finely logits are sorted into bins, and how many there are."""

_SLACK = 1e-6
"""More than the part by which logits with the same float32 quotient differ."""

_SAMPLED = 16
"""One token in so many is looked at to guess where a sum of weights is reached."""


class Candidates(NamedTuple):
    """Some tokens of each row.

    Attributes:
        ids: in ascending order, int64 `[batch, n]`; padding follows the last one of a row.
        logits: `[batch, n]`, -inf for padding.
        counts: how many each row has.
    """

    ids: np.ndarray
    logits: np.ndarray
    counts: list[int]

    @classmethod
    def of(cls, logits: np.ndarray, ids: Sequence[np.ndarray]) -> Candidates:
        """The tokens with these ids, a list for each row, of logits `[batch, vocab]`."""
        if len(ids) == 1:
            return cls(ids[0][None], logits[:, ids[0]], [len(ids[0])])
        counts = [len(row) for row in ids]
        shape = len(ids), max(counts)
        found = cls(np.zeros(shape, np.int64), np.full(shape, -np.inf, logits.dtype), counts)
        for i, row in enumerate(ids):
            found.ids[i, : len(row)] = row
            found.logits[i, : len(row)] = logits[i, row]
        return found

    def spread(self, size: int) -> torch.Tensor:
        """The logits with every other token of the vocabulary at -inf, `[batch, size]`."""
        dtype = torch.from_numpy(self.logits).dtype
        out = torch.full((len(self.logits), size), -math.inf, dtype=dtype)
        for row, ids, logits, n in zip(out.numpy(), *self, strict=True):
            row[ids[:n]] = logits[:n]
        return out


class Rows:
    """Logits on the CPU, `[batch, vocab]`, and what truncations ask about them.

    Args:
        logits: the logits.
        divisor: a temperature. All answers are about the logits divided by it, of which only those
            of candidates are computed.

    Attributes:
        size: of the vocabulary.
        largest: the largest logit of each row, `[batch, 1]`.
    """

    def __init__(self, logits: torch.Tensor, divisor: float = 1.0) -> None:
        self._logits, self._values, self._divisor = logits, logits.numpy(), divisor
        self.size = logits.shape[1]
        self._end = self.size // _BLOCK * _BLOCK
        blocks = logits[:, : self._end] if self._end < self.size else logits
        self._maxima = blocks.reshape(len(logits), -1, _BLOCK).amax(-1).numpy()
        if self._end < self.size:  # behind the last whole block each token is a block of its own
            rest = self._values[:, self._end :]
            self._maxima = np.concatenate((self._maxima, rest), axis=-1)
        self._largest = self._maxima.max(-1, keepdims=True)
        self.largest: np.ndarray = self._largest / divisor

    @cached_property
    def total(self) -> np.ndarray:
        """The sum of the weights of each row, float64 `[batch, 1]`."""
        found = weights(self._logits / self._divisor, torch.from_numpy(self.largest))
        total: np.ndarray = found.sum(-1, keepdim=True).numpy()
        return total

    @cached_property
    def rough_total(self) -> np.ndarray:
        """The sum of the rough weights of each row, float64 `[batch, 1]`."""
        rough = torch.from_numpy(self._rough_weights)
        total: np.ndarray = rough.sum(-1, keepdim=True, dtype=torch.float64).numpy()
        return total

    def rough_weight(self, found: Candidates) -> np.ndarray:
        """The sum of the rough weights of some tokens of each row, float64 `[batch, 1]`."""
        rows = zip(self._rough_weights, found.ids, found.counts, strict=True)
        return np.array([[row[ids[:n]].sum(dtype=np.float64)] for row, ids, n in rows])

    @cached_property
    def _rough_weights(self) -> np.ndarray:
        """The weights of all tokens in the precision of the logits, `[batch, vocab]`."""
        below = self._logits - torch.from_numpy(self._largest)
        if self._divisor != 1:
            below.div_(self._divisor)
        rough: np.ndarray = below.exp_().numpy()
        return rough

    def reached_by(self, k: int) -> np.ndarray:
        """A logit that k tokens of each row reach, and often not many more, `[batch, 1]`.

        Every block has a token that reaches its maximum, so that the k-th largest maximum will do.
        """
        values = self._maxima if k <= self._maxima.shape[1] else self._values
        place = values.shape[1] - k
        kth: np.ndarray = np.partition(values, place, axis=-1)[:, place : place + 1]
        return kth / self._divisor

    def above_which_lies(self, share: float, *, guess: bool) -> np.ndarray:
        """A logit above which the tokens of each row have a share of its weight, `[batch, 1]`.

        Args:
            share: from 0 to 1.
            guess: whether to look at a sample of the tokens, which may be misleading.
        """
        sample = slice(None, None, _SAMPLED if guess else 1)
        depths = (self._largest - self._values[:, sample]) * (_BINS_A_NAT / self._divisor)
        places = np.minimum(depths, _NUM_BINS - 1).astype(np.int64)
        rough = self._rough_weights[:, sample]
        bins = [np.bincount(*row, minlength=_NUM_BINS) for row in zip(places, rough, strict=True)]
        running = np.stack(bins).cumsum(-1)
        # Two bins more: one that holds the border, and one for rounding.
        num_bins = (running < share * running[:, -1:]).sum(-1, keepdims=True) + 2
        border: np.ndarray = self.largest - (num_bins / _BINS_A_NAT).astype(self.largest.dtype)
        return border

    def at_least(self, threshold: np.ndarray) -> Candidates:
        """Every allowed token whose logit is no less than the threshold of its row, or little less.

        Args:
            threshold: `[batch, 1]`, in the precision of the logits.
        """
        bars = threshold
        if self._divisor != 1:  # what is a little less may round to the same quotient
            bars = threshold * self._divisor
            bars -= np.abs(bars) * _SLACK
        rows = zip(self._values, self._maxima, bars[:, 0].tolist(), strict=True)
        found = Candidates.of(self._values, [self._reaching(*row) for row in rows])
        if self._divisor == 1:
            return found
        return Candidates(found.ids, found.logits / self._divisor, found.counts)

    def _reaching(self, values: np.ndarray, maxima: np.ndarray, bar: float) -> np.ndarray:
        """The ids of one row, `[vocab]`, with at least some logit."""
        if bar == -math.inf:
            return np.flatnonzero(values > bar)
        hit = np.flatnonzero(maxima >= bar)
        if 4 * len(hit) > len(maxima):
            return np.flatnonzero(values >= bar)
        num_blocks = self._end // _BLOCK
        blocks = hit[hit < num_blocks]
        place = np.flatnonzero(values[: self._end].reshape(-1, _BLOCK)[blocks] >= bar)
        ids: np.ndarray = blocks[place // _BLOCK] * _BLOCK + place % _BLOCK
        if len(blocks) < len(hit):
            ids = np.concatenate((ids, hit[len(blocks) :] - num_blocks + self._end))
        return ids
