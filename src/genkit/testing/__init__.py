"""Tools to test parts with: models without weights, a tokenizer without a file, laws of parts.

The checks draw runs with Hypothesis, and so do the strategies in `genkit.testing.strategies`; they
are imported when they are first used, so that models and tokenizer do without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.one_step import choose, ending, process
from genkit.testing.scripted_model import ScriptedModel
from genkit.testing.tiny_model import TinyModel

if TYPE_CHECKING:
    from genkit.testing.checks.decoding import check_backend as check_backend
    from genkit.testing.checks.decoding import check_backends_agree as check_backends_agree
    from genkit.testing.checks.decoding import check_cache_manager as check_cache_manager
    from genkit.testing.checks.decoding import check_decoder as check_decoder
    from genkit.testing.checks.parts import check_logits_processor as check_logits_processor
    from genkit.testing.checks.parts import check_sampler as check_sampler
    from genkit.testing.checks.parts import check_stop_criterion as check_stop_criterion
    from genkit.testing.laws.case import Case as Case
    from genkit.testing.laws.context import check_context as check_context
    from genkit.testing.laws.decoding import LAWS as LAWS
    from genkit.testing.laws.finding import Finding as Finding
    from genkit.testing.laws.law import Law as Law
    from genkit.testing.laws.law import Verdict as Verdict
    from genkit.testing.laws.law_broken import LawBroken as LawBroken
    from genkit.testing.laws.observer import check_observer as check_observer
    from genkit.testing.verification.verify import Verification as Verification
    from genkit.testing.verification.verify import verify as verify

_OBJECTS = {
    "Case": "genkit.testing.laws.case",
    "Finding": "genkit.testing.laws.finding",
    "LAWS": "genkit.testing.laws.decoding",
    "Law": "genkit.testing.laws.law",
    "LawBroken": "genkit.testing.laws.law_broken",
    "Verdict": "genkit.testing.laws.law",
    "Verification": "genkit.testing.verification.verify",
    "verify": "genkit.testing.verification.verify",
    "check_backend": "genkit.testing.checks.decoding",
    "check_backends_agree": "genkit.testing.checks.decoding",
    "check_cache_manager": "genkit.testing.checks.decoding",
    "check_context": "genkit.testing.laws.context",
    "check_decoder": "genkit.testing.checks.decoding",
    "check_logits_processor": "genkit.testing.checks.parts",
    "check_observer": "genkit.testing.laws.observer",
    "check_sampler": "genkit.testing.checks.parts",
    "check_stop_criterion": "genkit.testing.checks.parts",
}

__all__ = [
    "LAWS",
    "ByteTokenizer",
    "Case",
    "Finding",
    "Law",
    "LawBroken",
    "ScriptedModel",
    "TinyModel",
    "Verdict",
    "Verification",
    "check_backend",
    "check_backends_agree",
    "check_cache_manager",
    "check_context",
    "check_decoder",
    "check_logits_processor",
    "check_observer",
    "check_sampler",
    "check_stop_criterion",
    "choose",
    "ending",
    "process",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _OBJECTS:
        return getattr(import_module(_OBJECTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
