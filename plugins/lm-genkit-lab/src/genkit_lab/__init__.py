"""Three decoding ideas from papers for genkit, each one short file."""

from __future__ import annotations

from genkit.plugins import Lazy, hookimpl, lazy

genkit_api = ">=1.0,<2"


@hookimpl
def genkit_register_logits_processors() -> list[Lazy]:
    """A temperature and a truncation; neither is imported before somebody uses it."""
    falls = "A temperature that falls where the model is certain."
    keeps = "Keeps every token at least as probable as it is that two draws agree."
    return [
        lazy("edt", "genkit_lab.edt:Edt", falls),
        lazy("p_less", "genkit_lab.p_less:PLess", keeps),
    ]


@hookimpl
def genkit_register_samplers() -> list[Lazy]:
    """A draw that spreads the samples of one prompt."""
    summary = "Draws samples of one prompt that differ as much as they can."
    return [lazy("arithmetic", "genkit_lab.arithmetic:Arithmetic", summary)]
