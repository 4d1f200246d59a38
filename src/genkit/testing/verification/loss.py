"""What a lossy cache costs: how far its predictions are from those of the model without a cache."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from genkit.components.caches import Dynamic, NoCache
from genkit.core.result import Step
from genkit.core.state import GenerationState
from genkit.decoders.autoregressive import Autoregressive
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import Comparison, largest_difference
from genkit.testing.laws.disturbances import Detour
from genkit.testing.laws.trace import Trace, trace_run
from genkit.testing.laws.variant import variant_of, with_new_cache
from genkit.testing.verification.law_row import finite

__all__ = ["Loss", "measure_loss"]

_NUM_TOKENS = 16


@dataclass(frozen=True)
class Loss:
    """A lossy cache against no cache at all.

    Attributes:
        divergences: KL(without cache || with it) of the distribution of each token, in nats, before
            any processor. Both ways have the same tokens before it: those that are chosen without a
            cache.
        first_differences: for each prompt, after how many tokens the answer is another one than
            without a cache, under the same seed; None where it never is.
        worst_logit_error: the largest difference between the model's logits with the cache and
            without.
        within_rounding: whether all logits are those without a cache, up to rounding.
        longest: tokens of the longest text, prompt and answer.
        resident_bytes: the most memory that the cache holds between two steps; None where it does
            not say.
        peak_bytes: the most that it holds within one; None where it does not say.
        dynamic_bytes: the most that the model's own cache holds for the same tokens.
    """

    divergences: tuple[float, ...]
    first_differences: tuple[int | None, ...]
    worst_logit_error: float
    within_rounding: bool
    longest: int
    resident_bytes: int | None
    peak_bytes: int | None
    dynamic_bytes: int | None

    @property
    def kl_mean(self) -> float:
        """The mean divergence."""
        return statistics.fmean(self.divergences)

    @property
    def kl_max(self) -> float:
        """The largest divergence."""
        return max(self.divergences)

    @property
    def median_first_difference(self) -> float | None:
        """After how many tokens half of the answers differ; None: most of them never do."""
        counts = [math.inf if n is None else n for n in self.first_differences]
        return finite(statistics.median(counts))

    @property
    def remark(self) -> str:
        """What to bear in mind about the numbers; empty if nothing."""
        if not self.within_rounding:
            return ""
        return (
            f"the cache has lost nothing yet in texts of up to {self.longest} tokens; in longer "
            "ones it may"
        )

    def to_dict(self) -> dict[str, Any]:
        """The loss as plain data."""
        return {
            "kl_mean": finite(self.kl_mean),
            "kl_max": finite(self.kl_max),
            "num_distributions": len(self.divergences),
            "first_differences": list(self.first_differences),
            "median_first_difference": self.median_first_difference,
            "worst_logit_error": finite(self.worst_logit_error),
            "within_rounding": self.within_rounding,
            "longest": self.longest,
            "resident_bytes": self.resident_bytes,
            "peak_bytes": self.peak_bytes,
            "dynamic_bytes": self.dynamic_bytes,
        }


def measure_loss(pipeline: Pipeline, cases: Iterable[Case]) -> Loss:
    """Run every case with the pipeline's cache and without.

    Args:
        pipeline: has a lossy cache manager; what it holds from earlier runs is not used.
        cases: their prompts are continued by 16 tokens, or as many as the model's context holds.

    Raises:
        GenkitError: a run failed.
    """
    pipeline = variant_of(pipeline, decoder=Autoregressive())
    uncached = variant_of(pipeline, cache=NoCache())
    mine, dynamic = _Scales(), _Scales()
    divergences: list[float] = []
    differences: list[int | None] = []
    errors: list[float] = []
    longest, within_rounding = 0, True
    compare = Comparison.of(pipeline)
    for case in cases:
        case = replace(case, num_tokens=_num_tokens(pipeline, case))
        reference = _run(uncached, case)
        longest = max(longest, *(len(trace.prompt) + len(trace.ids) for trace in reference))
        free = _run(with_new_cache(pipeline), case)
        differences += map(_first_difference, reference, free)
        forced = _run(_following(reference, with_new_cache(pipeline), mine), case)
        pairs = list(_logits_of_both(reference, forced))
        divergences += [_divergence(*pair) for pair in pairs]
        for pair in pairs:
            errors.append(largest_difference(*pair))
            within_rounding &= errors[-1] <= compare.tolerance(*pair)
        _run(_following(reference, variant_of(pipeline, cache=Dynamic()), dynamic), case)
    return Loss(
        divergences=tuple(divergences),
        first_differences=tuple(differences),
        worst_logit_error=max(errors),
        within_rounding=within_rounding,
        longest=longest,
        resident_bytes=mine.resident,
        peak_bytes=mine.peak,
        dynamic_bytes=dynamic.resident,
    )


class _Scales(Detour):
    """The plain loop, after each step of which the cache is weighed.

    Attributes:
        resident, peak: the largest `num_bytes` and `peak_bytes`; None where no cache had them.
    """

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.resident: int | None = None
        self.peak: int | None = None

    def after(self, step: Step, state: GenerationState, holders: Sequence[Any]) -> None:
        self.resident = _larger(self.resident, getattr(holders[0], "num_bytes", None))
        self.peak = _larger(self.peak, getattr(holders[0], "peak_bytes", None))


class _Follow:
    """A sampler that chooses what another run has chosen."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        places = zip(state.rows.tolist(), state.num_generated.tolist(), strict=True)
        ids = [self._traces[row].ids[step] for row, step in places]
        return torch.tensor(ids, device=logits.device)


def _following(reference: Sequence[Trace], pipeline: Pipeline, scales: _Scales) -> Pipeline:
    """The pipeline on the tokens of a run that is over; what it would choose does not matter."""
    return variant_of(pipeline, processors=(), sampler=_Follow(reference), decoder=scales)


def _run(pipeline: Pipeline, case: Case) -> list[Trace]:
    return trace_run(pipeline, case.prompts, case.seeds, case.num_tokens)


def _num_tokens(pipeline: Pipeline, case: Case) -> int:
    length = pipeline.model.context_length
    if length is None:
        return _NUM_TOKENS
    return min(_NUM_TOKENS, length - max(map(len, case.prompts)))


def _logits_of_both(
    one: Sequence[Trace], other: Sequence[Trace]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The logits of two runs, step by step."""
    for first, second in zip(one, other, strict=True):
        yield from zip(first.raw_logits, second.raw_logits, strict=True)


def _divergence(logits: torch.Tensor, other: torch.Tensor) -> float:
    """KL(softmax(logits) || softmax(other)), in nats."""
    if torch.equal(logits, other):
        return 0.0
    p, q = logits.double().log_softmax(-1), other.double().log_softmax(-1)
    terms = torch.where(p == -math.inf, 0.0, p.exp() * (p - q))
    return max(0.0, float(terms.sum()))


def _first_difference(reference: Trace, other: Trace) -> int | None:
    """How many tokens two answers share from the beginning; None if they are the same."""
    if reference.ids == other.ids:
        return None
    pairs = enumerate(zip(reference.ids, other.ids, strict=False))
    shorter = min(len(reference.ids), len(other.ids))
    return next((step for step, (one, two) in pairs if one != two), shorter)


def _larger(known: int | None, new: int | None) -> int | None:
    return known if new is None else max(known or 0, new)
