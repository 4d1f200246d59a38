"""What was found out about one law, as it is reported."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Verdict

_FAR_LESS = 0.5
"""A row at a wrong place changes as much as the cache does, or more; a few roundings do not."""


@dataclass(frozen=True)
class LawRow:
    """One line of a report.

    Attributes:
        name: of the law.
        statement: what it says, in one sentence.
        holds: None where the law says nothing, as the part has not promised what it is about or
            something is lacking, or is measured only; `detail` has the reason.
        cases: how many cases it was tried on.
        detail: why it does not hold, or does not apply; empty if it holds.
        part: the part whose law it is, as recipes place it; None for a law of the whole pipeline.
        decisions: how many choices of a token were compared.
        excused: how many of them differed within the logit error.
        worst_logit_error: the largest difference between logits that should be equal; None where
            none were compared, or where the difference is not finite.
        smallest_margin: the closest decision; None where none has a margin.
    """

    name: str
    statement: str
    holds: bool | None
    cases: int = 0
    detail: str = ""
    part: str | None = None
    decisions: int = 0
    excused: int = 0
    worst_logit_error: float | None = None
    smallest_margin: float | None = None

    @classmethod
    def of(cls, verdict: Verdict, cache_error: float = 0.0) -> Self:
        """The row of a law of decoding.

        A cache that rounds turns a difference of 1e-5 that falls the other way into one of its own
        steps. Where that is all that speaks against a law, it is measured: neither held nor broken.

        Args:
            verdict: what was found out.
            cache_error: by how much a lossy cache changes logits, compared with none.
        """
        found = verdict.finding
        if not verdict.not_applicable and _is_rounding(found, cache_error):
            words = f"measured, as the cache rounds: {found.summary}"
            words += f"; the cache itself changes them by up to {cache_error:.2g}"
            verdict = replace(verdict, not_applicable=words)
        return cls(
            name=verdict.law.name,
            statement=verdict.law.statement,
            holds=verdict.holds,
            cases=found.cases,
            detail=verdict.detail,
            decisions=found.decisions,
            excused=found.excused,
            worst_logit_error=finite(found.worst_logit_error) if found.decisions else None,
            smallest_margin=finite(found.smallest_margin),
        )

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def _is_rounding(found: Finding, cache_error: float) -> bool:
    """Whether a law fails only by logits that differ far less than the cache changes them."""
    return (
        not found.holds
        and replace(found, beyond=0).holds
        and found.worst_logit_error < cache_error * _FAR_LESS
    )


def finite(value: float) -> float | None:
    """The number, or None for one that JSON does not have."""
    return value if math.isfinite(value) else None
