"""A law of decoding: a statement that can be tried on any pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from genkit.core.contracts import GRADES, Model, capabilities_of, name_of
from genkit.errors import FAILURES
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import grade_of, rounds
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.variant import with_new_cache

EXACT = frozenset({"exact", "tolerance"})
"""Grades of cache managers whose results are those without a cache."""

EVERY_GRADE = frozenset(GRADES)


@dataclass(frozen=True)
class Law:
    """Two ways to the same thing.

    Attributes:
        name: short, as `genkit verify` lists it.
        statement: what holds, in one sentence.
        check: goes both ways with one case and compares.
        grades: of the cache managers for which it holds.
        needs: capabilities of model and cache together, without which it says nothing.
        needs_tokenizer: whether it is about text.
        needs_tokens: how many tokens the model's context must hold.
        other: another model that it compares with; None: there is none.
    """

    name: str
    statement: str
    check: Callable[[Pipeline, Case], Finding]
    grades: frozenset[str] = EVERY_GRADE
    needs: frozenset[str] = frozenset()
    needs_tokenizer: bool = False
    needs_tokens: int = 0
    other: Model | None = None

    def why_not(self, pipeline: Pipeline) -> str:
        """Why the law says nothing about a pipeline; empty if it does."""
        cache = f"the cache {name_of(pipeline.parts.cache)!r}"
        grade = grade_of(pipeline.parts.cache)
        if grade not in self.grades:
            return f"{cache} is {grade}"
        if missing := sorted(self.needs - capabilities(pipeline)):
            if lacking := sorted(set(missing) - pipeline.model.supports):
                return f"the model with {cache} does not support {', '.join(lacking)}"
            return f"{cache} takes away {', '.join(missing)}"
        if self.needs_tokenizer and pipeline.tokenizer is None:
            return "there is no tokenizer"
        length = pipeline.model.context_length
        if length is not None and length < self.needs_tokens:
            return f"the model's context holds {length} tokens, and it takes {self.needs_tokens}"
        return ""

    def examine(self, pipeline: Pipeline, case: Case) -> Finding:
        """What one case shows; an exception is a mismatch like any other.

        What earlier runs have left in the cache manager would shorten the way of the law, so it
        gets a manager that is new.
        """
        try:
            return self.check(with_new_cache(pipeline), case)
        except FAILURES as error:
            words = f"raised {type(error).__name__}: {error} (prompts {list(case.prompts)})"
            return Finding(cases=1, mismatches=1, detail=words, error=error)

    def judge(self, pipeline: Pipeline, cases: Iterable[Case]) -> Verdict:
        """What several cases show together."""
        if reason := self.why_not(pipeline):
            return Verdict(self, Finding(), reason)
        found = sum((self.examine(pipeline, case) for case in cases), Finding())
        return self.verdict(found, model_rounds=rounds(pipeline.model))

    def verdict(self, found: Finding, *, model_rounds: bool = False) -> Verdict:
        """What a finding says about the law.

        Args:
            found: what was seen.
            model_rounds: whether the model does that it was seen with; the other one is asked.

        A model that rounds what flows through it turns a difference of 1e-5 into one of its own
        steps, so that unequal logits are no proof, and equal ones are luck. Its error is measured.
        """
        measured = ""
        model_rounds = model_rounds or rounds(self.other)
        if model_rounds and not found.mismatches and found.worst_logit_error > 0:
            measured = (
                f"measured, as the model rounds while it computes: the logits differ by up to "
                f"{found.worst_logit_error:.2g}"
            )
        return Verdict(self, found, measured)


@dataclass(frozen=True)
class Verdict:
    """What was found out about a law.

    Attributes:
        law: the law.
        finding: what was seen.
        not_applicable: why the law says nothing here; empty if it does.
    """

    law: Law
    finding: Finding
    not_applicable: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the law holds; None if it says nothing here."""
        return None if self.not_applicable else self.finding.holds

    @property
    def detail(self) -> str:
        """Why it does not hold or does not apply, in words."""
        return self.not_applicable or self.finding.summary


def capabilities(pipeline: Pipeline) -> frozenset[str]:
    """What a pipeline's model supports with its cache manager."""
    return capabilities_of(pipeline.model, pipeline.parts.cache)
