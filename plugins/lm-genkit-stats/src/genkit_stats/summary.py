"""What a file of statistics says about the runs that wrote to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

_LIMIT = 1e15
"""What no measure of a run comes near; without it a sum might have no end, and a table no width."""


class Mean:
    """The mean of numbers of which some are missing."""

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0

    def add(self, number: float | None) -> None:
        """Count a number, or none."""
        if number is not None:
            self.total += number
            self.count += 1

    @staticmethod
    def over(means: Iterable[Mean]) -> float | None:
        """The mean of all that some of them have counted; None: nothing."""
        found = list(means)
        count = sum(mean.count for mean in found)
        return sum(mean.total for mean in found) / count if count else None


class Sums:
    """What the records of one run add up to."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.tokens = 0
        self.decoded = 0  # tokens after the first step, which is the prefill
        self.rank = 0
        self.entropy, self.raw_entropy = Mean(), Mean()
        self.first = self.last = 0.0  # when the first and the last step ended

    def add(self, record: dict[str, Any]) -> None:
        """Count one record; one that lacks something changes nothing.

        Raises:
            KeyError, TypeError, ValueError, OverflowError: it lacks something, or has what is no
                number or no measure of a run.
        """
        row, rank = int(record["row"]), int(record["rank"])
        elapsed = round(float(record["elapsed"]), 6)  # as it is written
        # Logits may have been such that there is none.
        entropies = [record[name] for name in ("entropy", "raw_entropy")]
        entropy, raw_entropy = (None if x is None else float(x) for x in entropies)
        numbers = (row, rank, elapsed, entropy, raw_entropy)
        if not all(x is None or abs(x) < _LIMIT for x in numbers):  # so NaN is out too
            raise ValueError("a number is no measure of a run")
        if not self.tokens:
            self.first = elapsed
        self.rows.add(row)
        self.tokens += 1
        self.decoded += elapsed > self.first
        self.rank += rank
        self.entropy.add(entropy)
        self.raw_entropy.add(raw_entropy)
        self.last = elapsed


def read(lines: Iterable[str]) -> tuple[dict[str, Sums], int]:
    """The sums of each run, by its name, and how many lines are no records."""
    runs: dict[str, Sums] = {}
    num_left_out = 0
    for line in lines:
        try:
            record = json.loads(line, parse_constant=int)  # which refuses NaN
            runs.setdefault(str(record["run"]), Sums()).add(record)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            num_left_out += 1
    return {name: sums for name, sums in runs.items() if sums.tokens}, num_left_out


def figures(runs: Collection[Sums]) -> dict[str, Any]:
    """Counts, means over the tokens, and the speed of runs as if one came after the other."""
    tokens = sum(run.tokens for run in runs)
    seconds = sum(run.last - run.first for run in runs)
    return {
        "rows": sum(len(run.rows) for run in runs),
        "tokens": tokens,
        "mean_entropy": Mean.over(run.entropy for run in runs),
        "mean_raw_entropy": Mean.over(run.raw_entropy for run in runs),
        "mean_rank": sum(run.rank for run in runs) / tokens,
        "tokens_per_second": sum(run.decoded for run in runs) / seconds if seconds else None,
    }
