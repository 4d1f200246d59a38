"""Candidates from the most probable on, of which truncations keep the first so many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from genkit.components.candidates import Candidates, Row
from genkit.components.ranking import Ties

__all__ = ["ROUNDING", "Ranked", "is_clear_of"]

ROUNDING = 1e-12
"""More than the part by which float64 sums of the same weights in another order differ."""

_ROUGHNESS = 2e-5
"""More than the part by which a rough weight is wrong.

That of `exp` itself is one unit in the last place, 1.2e-7. Rounding ``(l - l_max) / T`` to 24 bits
twice adds at most 1.2e-7 of its size, which is below 104 where a float32 weight is not 0.
"""


class Ranked:
    """The candidates of a row in the order of their logits; of equal ones the lower id is first.

    `top_k`, `top_p` and `min_p` each keep the first so many, so that several of them ask for one
    order only.

    Args:
        row: the row.
        found: its candidates; whatever the first two truncations keep is among them.

    Attributes:
        count: how many of the first are still kept.
    """

    def __init__(self, row: Row, found: Candidates) -> None:
        self._row, self._found = row, found
        self._negated = np.sort(-found.logits)  # ascending, so that it can be searched
        self.count = int(self._negated.searchsorted(math.inf))
        self._whole = True  # whether nothing has been cut off yet: then a row has other tokens too

    @cached_property
    def _running(self) -> np.ndarray:
        """The sums of the weights of what is there when they are first asked for, in order."""
        exponents = self._negated[: self.count].astype(np.float64)
        running: np.ndarray = np.exp(exponents[0] - exponents).cumsum()
        return running

    def keep(self, count: int, ties: Ties = "by_id", min_keep: int = 1) -> None:
        """Keep the first so many of those that are still there, at least `min_keep`.

        With ``ties: keep`` those stay that equal the last one.
        """
        kept = min(max(count, 1), self.count)
        if ties == "keep":
            kept = int(self._negated.searchsorted(self._negated[kept - 1], "right"))
        self.count = min(max(kept, min_keep), self.count)
        self._whole = False

    def num_reaching(self, below_largest: float) -> int:
        """How many logits are at least the largest one plus some negative number."""
        return int(self._negated.searchsorted(-(-self._negated[0] + below_largest), "right"))

    def num_below(self, share: float) -> int | None:
        """How many of the first hold together less than a share of the weight.

        None where rounding could decide. So no sum is equal to the share either.
        """
        for total, error in self._totals():
            limit = share * total
            below = int(self._running.searchsorted(limit))
            if is_clear_of(self._running, below, limit, error):
                return below
        return None

    def kept(self) -> Candidates:
        """Those that are kept, in the order of ids."""
        ids, logits = self._found
        last = -self._negated[self.count - 1]
        places = (logits >= last).nonzero()[0]
        if len(places) > self.count:  # ties at the border
            above = (logits > last).nonzero()[0]
            equal = (logits == last).nonzero()[0][: self.count - len(above)]
            places = np.sort(np.concatenate((above, equal)))
        return Candidates(ids[places], logits[places])

    def _totals(self) -> Iterator[tuple[float, float]]:
        """The weight of what is still there, and the most by which it may be wrong.

        The better it is, the longer it takes.
        """
        held = float(self._running[self.count - 1])
        if self._whole and len(self._negated) < self._row.size:
            rest = self._row.rough_total - self._row.rough_weight(self._found)
            yield held + rest, _ROUGHNESS * rest + ROUNDING * held
            held = self._row.total
        yield held, ROUNDING * held


def is_clear_of(running: np.ndarray, place: int, limit: float, error: float) -> bool:
    """Whether no sum is so near to a limit that rounding could decide.

    Args:
        running: ascending sums, `[n]`.
        place: the first of them that is not below the limit, n if there is none.
        error: how near is too near.
    """
    after = place == len(running) or running[place] - limit > error
    return bool(after and (place == 0 or limit - running[place - 1] > error))
