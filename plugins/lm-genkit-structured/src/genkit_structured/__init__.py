"""Answers of a given form for genkit: the parts `structured` and `structured_end`."""

from __future__ import annotations

from genkit.plugins import Lazy, hookimpl, lazy

genkit_api = ">=1.0,<2"


@hookimpl
def genkit_register_logits_processors() -> list[Lazy]:
    """The processor that forbids what the grammar does not go on with."""
    target = "genkit_structured.structured:Structured"
    return [
        lazy(
            "structured",
            target,
            "Forbids every token with which the answer could not keep its form.",
        )
    ]


@hookimpl
def genkit_register_stop_criteria() -> list[Lazy]:
    """The criterion that ends a row with the last token of the grammar."""
    target = "genkit_structured.structured_end:StructuredEnd"
    return [lazy("structured_end", target, "Ends a row with the token that completes its answer.")]
