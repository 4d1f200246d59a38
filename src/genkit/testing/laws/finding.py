"""What came out of comparing two ways to the same tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_EXCUSED = 0.01
"""The share of decisions that may be excused; beyond it a law has proven nothing."""


@dataclass(frozen=True)
class Finding:
    """Counts over cases; the sum of two findings is the finding over the cases of both.

    Attributes:
        cases: how many cases were looked at.
        decisions: how many times both ways had the same history and chose a token.
        mismatches: differences that nothing excuses.
        excused: different tokens where the margin was within the measured logit error.
        beyond: steps of a lossy cache whose logits differ by more than rounding.
        worst_logit_error: the largest difference between the model's logits of both ways.
        smallest_margin: the closest decision: by how much it could have been missed.
        detail: the first mismatch in words; empty if there is none.
        error: the exception behind the first mismatch, if it was one.
    """

    cases: int = 0
    decisions: int = 0
    mismatches: int = 0
    excused: int = 0
    beyond: int = 0
    worst_logit_error: float = 0.0
    smallest_margin: float = math.inf
    detail: str = ""
    error: BaseException | None = None

    def __add__(self, other: Finding) -> Finding:
        return Finding(
            cases=self.cases + other.cases,
            decisions=self.decisions + other.decisions,
            mismatches=self.mismatches + other.mismatches,
            excused=self.excused + other.excused,
            beyond=self.beyond + other.beyond,
            worst_logit_error=max(self.worst_logit_error, other.worst_logit_error),
            smallest_margin=min(self.smallest_margin, other.smallest_margin),
            detail=self.detail or other.detail,
            error=self.error if self.detail else other.error,
        )

    @property
    def holds(self) -> bool:
        """Nothing differs, and enough was seen to say so."""
        return not self.mismatches and not self._proves_nothing

    @property
    def summary(self) -> str:
        """The first mismatch, or why nothing is proven; empty if the law holds."""
        return self.detail if self.mismatches else self._proves_nothing

    @property
    def _proves_nothing(self) -> str:
        most = MOST_EXCUSED * self.decisions
        if not self.decisions:
            return "nothing was compared"
        if self.excused > most:
            return (
                f"{self.excused} of {self.decisions} decisions had to be excused, more than "
                f"{MOST_EXCUSED:.0%}: this proves nothing"
            )
        if self.beyond > most:
            return (
                f"in {self.beyond} of {self.decisions} steps the logits differ by more than "
                f"rounding (by up to {self.worst_logit_error:.2g}), more than {MOST_EXCUSED:.0%}"
            )
        return ""
