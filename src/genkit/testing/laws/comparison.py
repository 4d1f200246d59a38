"""When two runs count as equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from genkit.pipeline import Pipeline
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.margins import Margin, margin_of
from genkit.testing.laws.trace import Trace

ROUNDINGS = {
    torch.float64: 1000,
    torch.float32: 1000,
    torch.bfloat16: 16,
    torch.float16: 16,
}
"""How many units in the last place of the largest logit two equal computations may be apart.

The same sums in another order differ by about the square root of their number, and layers with
large weights multiply that. For `TinyModel`, whose logits reach 12, the laws see 2e-14 in float64,
8e-6 in float32, 0.25 in bfloat16 and 0.04 in float16; the bounds are then 3e-12, 1.4e-3, 1.5 and
0.19. The mistakes that the tests of genkit plant move its logits by 0.1 to 20.
"""

_WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Comparison:
    """Compares what rows did.

    Tokens must be the same, and so must the model's logits up to rounding: without that second rule
    a wrong position would hide behind the large error that it makes itself. Other tokens are
    excused where the decision was closer than the error of the processed logits, and that error is
    rounding as well. In half precision only the logits are compared.

    Attributes:
        dtype: in what precision the model computes.
        margin: of the sampler's decisions; None: no difference is excused.
        lossy: the cache, or the model while it computes, rounds to few bits: where that falls the
            other way, logits differ by more than rounding, so up to one percent of the steps may.
        bound: the logit error that a cache of grade `tolerance` states.
    """

    dtype: torch.dtype
    margin: Margin | None = None
    lossy: bool = False
    bound: float = 0.0

    @classmethod
    def of(cls, pipeline: Pipeline, other: Pipeline | None = None) -> Comparison:
        """How the runs of a pipeline are to be compared, with each other or with another one's."""
        manager = pipeline.parts.cache
        models = [each.model for each in (pipeline, other) if each is not None]
        return cls(
            dtype=max(map(precision_of, models), key=lambda dtype: torch.finfo(dtype).eps),
            margin=margin_of(pipeline.parts.sampler),
            lossy=grade_of(manager) == "lossy" or any(map(rounds, models)),
            bound=float(getattr(manager, "logit_bound", 0.0)),
        )

    def rows(self, first: Sequence[Trace], second: Sequence[Trace], what: str) -> Finding:
        """The finding over the rows of two runs, in one case."""
        found = Finding(cases=1)
        for i, (one, other) in enumerate(zip(first, second, strict=True)):
            found += self.row(one, other, f"{what}, row {i}")
        return found

    def row(self, one: Trace, other: Trace, what: str) -> Finding:
        """Step by step as long as both have the same history."""
        found = Finding()
        for step in range(min(len(one.ids), len(other.ids))):
            at_step, goes_on = self._step(one, other, step, f"{what}, step {step}")
            found += at_step
            if not goes_on:
                return found
        return found + _ends(one, other, what)

    def tolerance(self, *logits: torch.Tensor) -> float:
        """By how much equal logits may differ."""
        largest = max(map(_largest, logits))
        return ROUNDINGS[self.dtype] * torch.finfo(self.dtype).eps * largest + self.bound

    def _step(self, one: Trace, other: Trace, step: int, where: str) -> tuple[Finding, bool]:
        """The finding at one step, and whether there is more to compare after it."""
        raw = one.raw_logits[step], other.raw_logits[step]
        error = largest_difference(*raw)
        ids = one.ids[step], other.ids[step]
        margin = self._margin(one, other, step)
        found = Finding(decisions=1, worst_logit_error=error, smallest_margin=margin)
        if error and error > (tolerance := self.tolerance(*raw)):
            if self.lossy:
                return found + Finding(beyond=1), False
            why = "the bound it states allows" if self.bound else "rounding explains"
            words = f"the logits differ by {error:.3g}, and {why} {tolerance:.2g}"
            return found + _mismatch(where, one, words), False
        if ids[0] == ids[1]:
            return found, True
        if self.dtype not in _WIDE:
            return found, False
        processed = one.logits[step], other.logits[step]
        spread = largest_difference(*processed)
        if (
            self.margin is not None
            and spread > 0
            and margin <= spread <= self.tolerance(*processed)
        ):
            return found + Finding(excused=1), False
        words = (
            f"token {ids[0]} and token {ids[1]}; margin {margin:.3g}, error of the processed "
            f"logits {spread:.3g}"
        )
        return found + _mismatch(where, one, words), False

    def _margin(self, one: Trace, other: Trace, step: int) -> float:
        if self.margin is None:
            return float("inf")
        same = one.ids[step] == other.ids[step] and torch.equal(
            one.logits[step], other.logits[step]
        )
        return min(self.margin(trace, step) for trace in ((one,) if same else (one, other)))


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Of two tensors of one shape; infinite where only one is -inf, and for NaN."""
    if torch.equal(one, other):
        return 0.0
    difference = (one - other).abs()
    difference[one == other] = 0  # both -inf
    return float(difference.nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def precision_of(model: Any) -> torch.dtype:
    """In what precision a model computes: its `dtype`, what it describes, or float32."""
    dtype = getattr(model, "dtype", None)
    if dtype is None and hasattr(model, "describe"):
        dtype = getattr(torch, str(model.describe().get("dtype")), None)
    return dtype if dtype in ROUNDINGS else torch.float32


def rounds(model: Any) -> bool:
    """Whether a model rounds what flows through it to few bits; see `contracts.Model`."""
    return bool(getattr(model, "rounds", False))


def grade_of(manager: Any) -> str:
    """The grade of a cache manager; one that states none claims to be exact."""
    return str(getattr(manager, "grade", "exact"))


def _largest(logits: torch.Tensor) -> float:
    """The largest finite logit by its absolute value, at least 1."""
    return max(1.0, float(logits.masked_fill(~logits.isfinite(), 0).abs().max()))


def _ends(one: Trace, other: Trace, what: str) -> Finding:
    """Both have chosen the same: they must have ended alike."""
    if one.stop == other.stop and len(one.ids) == len(other.ids):
        return Finding()
    words = " and ".join(f"{_why(trace)} after {len(trace.ids)} tokens" for trace in (one, other))
    return _mismatch(what, one, f"the same tokens, and yet the row ends by {words}")


def _why(trace: Trace) -> str:
    return "nothing" if trace.stop is None else repr(trace.stop.criterion)


def _mismatch(where: str, trace: Trace, words: str) -> Finding:
    return Finding(mismatches=1, detail=f"{where}: {words} (prompt {list(trace.prompt)})")
