"""The law that a model is the same one on every backend."""

from __future__ import annotations

from genkit.components.caches import Dynamic
from genkit.core.contracts import Model
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import Comparison, grade_of
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Law
from genkit.testing.laws.trace import trace_run
from genkit.testing.laws.variant import variant_of

NAME = "one backend = another"


def same_as_on(other: Model) -> Law:
    """The law that a pipeline gives what it gives over another model, which is to be the same one.

    Args:
        other: on another backend. It is given a cache of its own kind where the pipeline's promises
            the logits of none, and the pipeline's own where that loses something.
    """

    def check(pipeline: Pipeline, case: Case) -> Finding:
        if words := _difference(pipeline.model, other):
            return Finding(cases=1, decisions=1, mismatches=1, detail=words)
        lossy = grade_of(pipeline.parts.cache) == "lossy"
        twin = variant_of(pipeline, model=other, cache=pipeline.parts.cache if lossy else Dynamic())
        arguments = case.prompts, case.seeds, case.num_tokens
        first, second = trace_run(pipeline, *arguments), trace_run(twin, *arguments)
        return Comparison.of(pipeline, twin).rows(first, second, "here and on the other backend")

    statement = "the same tokens on another backend, and the logits up to rounding"
    return Law(NAME, statement, check, other=other)


def _difference(model: Model, other: Model) -> str | None:
    """What makes them two models, before anything is computed; None if nothing does."""
    here, there = model.vocab_size, other.vocab_size
    if here != there:
        return f"logits are {here} wide here and {there} there: these are two models"
    ends, other_ends = sorted(model.eos_token_ids), sorted(other.eos_token_ids)
    if ends != other_ends:
        return (
            f"the end tokens are {ends} here and {other_ends} there, so that texts end at other "
            "places; give both models the same tokenizer"
        )
    return None
