"""What a file of statistics says about the runs that wrote to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any


class Sums:
    """What the records of one run add up to."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.tokens = 0
        self.decoded = 0  # tokens after the first step, which is the prefill
        self.rank = 0
        self.entropy = self.raw_entropy = 0.0
        self.first = self.last = 0.0  # when the first and the last step ended

    def add(self, record: dict[str, Any]) -> None:
        """Count one record; one that lacks something changes nothing.

        Raises:
            KeyError, TypeError, ValueError: it lacks something.
        """
        row, rank, elapsed = int(record["row"]), int(record["rank"]), float(record["elapsed"])
        entropy, raw_entropy = float(record["entropy"]), float(record["raw_entropy"])
        if not self.tokens:
            self.first = elapsed
        self.rows.add(row)
        self.tokens += 1
        self.decoded += elapsed > self.first
        self.rank += rank
        self.entropy += entropy
        self.raw_entropy += raw_entropy
        self.last = elapsed


def read(lines: Iterable[str]) -> tuple[dict[str, Sums], int]:
    """The sums of each run, by its name, and how many lines are no records."""
    runs: dict[str, Sums] = {}
    num_left_out = 0
    for line in lines:
        try:
            record = json.loads(line, parse_constant=int)  # which refuses NaN
            runs.setdefault(str(record["run"]), Sums()).add(record)
        except (KeyError, TypeError, ValueError):
            num_left_out += 1
    return {name: sums for name, sums in runs.items() if sums.tokens}, num_left_out


def figures(runs: Collection[Sums]) -> dict[str, Any]:
    """Counts, means over the tokens, and the speed of runs as if one came after the other."""
    tokens = sum(run.tokens for run in runs)
    seconds = sum(run.last - run.first for run in runs)
    return {
        "rows": sum(len(run.rows) for run in runs),
        "tokens": tokens,
        "mean_entropy": sum(run.entropy for run in runs) / tokens,
        "mean_raw_entropy": sum(run.raw_entropy for run in runs) / tokens,
        "mean_rank": sum(run.rank for run in runs) / tokens,
        "tokens_per_second": sum(run.decoded for run in runs) / seconds if seconds else None,
    }
