"""Candidates from the most probable on, of which truncations keep the first so many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from genkit.components.candidates import Candidates, Rows
from genkit.components.ranking import Ties

ROUNDING = 1e-12
"""More than the part by which float64 sums of the same weights in another order differ."""

_ROUGHNESS = 2e-5
"""More than the part by which a rough weight is wrong.

That of `exp` itself is one unit in the last place, 1.2e-7. Rounding ``(l - l_max) / T`` to 24 bits
twice adds at most 1.2e-7 of its size, which is below 104 where a float32 weight is not 0.
"""


class Ranked:
    """The candidates of each row in the order of their logits; of equal ones the lower id is first.

    `top_k`, `top_p` and `min_p` each keep the first so many, so that several of them ask for one
    order only.

    Args:
        rows: the rows.
        found: their candidates; whatever the first two truncations keep is among them.

    Attributes:
        logits: in descending order, `[batch, n]`; -inf behind the last one.
        counts: how many of them are still kept, int64 `[batch]`.
    """

    def __init__(self, rows: Rows, found: Candidates) -> None:
        self._rows, self._found = rows, found
        self._index = np.arange(len(found.logits))
        self.logits = -np.sort(-found.logits)
        masses = np.exp(self.logits.astype(np.float64) - self.logits[:, :1])
        self._running = masses.cumsum(-1)
        self.counts = np.array(found.counts)
        self._whole = True  # whether nothing has been cut off yet: then a row has other tokens too

    def keep(self, counts: np.ndarray | int, ties: Ties = "by_id", min_keep: int = 1) -> None:
        """Keep the first so many of those that are still there, `[batch]`, at least `min_keep`.

        With ``ties: keep`` those stay that equal the last one.
        """
        kept: np.ndarray = np.minimum(np.maximum(counts, 1), self.counts)
        if ties == "keep":
            kept = (self.logits >= self._nth(self.logits, kept)).sum(-1)
        self.counts = np.minimum(np.maximum(kept, min_keep), self.counts)
        self._whole = False

    def num_below(self, share: float) -> np.ndarray | None:
        """How many of the first hold together less than a share of the weight, `[batch]`.

        None where rounding could decide. So no sum is equal to the share either.
        """
        for total, error in self._totals():
            limit = share * total
            if bool((np.abs(self._running - limit) > error).all()):
                below: np.ndarray = (self._running < limit).sum(-1)
                return below
        return None

    def kept(self) -> Candidates:
        """Those that are kept, in the order of ids."""
        logits = self._found.logits
        last = self._nth(self.logits, self.counts)
        stays = logits >= last
        if bool((stays.sum(-1) > self.counts).any()):  # ties at the border
            room = self.counts - (logits > last).sum(-1)
            equal = logits == last
            stays &= ~(equal & (equal.cumsum(-1) > room[:, None]))
        places = [np.flatnonzero(row) for row in stays]
        kept = Candidates.of(logits, places)
        for i, row in enumerate(places):
            kept.ids[i, : len(row)] = self._found.ids[i, row]
        return kept

    def _totals(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The weight of what is still there, and the most by which it may be wrong.

        The better it is, the longer it takes.
        """
        if not self._whole:
            total = self._nth(self._running, self.counts)
            yield total, ROUNDING * total
            return
        rest = self._rows.rough_total - self._rows.rough_weight(self._found)
        total = self._running[:, -1:] + rest
        yield total, _ROUGHNESS * rest + ROUNDING * total
        yield self._rows.total, ROUNDING * self._rows.total

    def _nth(self, values: np.ndarray, n: np.ndarray) -> np.ndarray:
        """The n-th value of each row, counted from 1, `[batch, 1]`."""
        found: np.ndarray = values[self._index, n - 1, None]
        return found
