"""Tools to test parts with: models without weights, a tokenizer without a file, laws of parts.

The checks draw runs with Hypothesis, and so do the strategies in `genkit.testing.strategies`; they
are imported when they are first used, so that models and tokenizer do without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.scripted_model import ScriptedModel
from genkit.testing.tiny_model import TinyModel

if TYPE_CHECKING:
    from genkit.testing.case import Case as Case
    from genkit.testing.checks_of_decoding import check_backend as check_backend
    from genkit.testing.checks_of_decoding import check_cache_manager as check_cache_manager
    from genkit.testing.checks_of_decoding import check_decoder as check_decoder
    from genkit.testing.checks_of_parts import check_logits_processor as check_logits_processor
    from genkit.testing.checks_of_parts import check_sampler as check_sampler
    from genkit.testing.checks_of_parts import check_stop_criterion as check_stop_criterion
    from genkit.testing.context_laws import check_context as check_context
    from genkit.testing.decoding_laws import LAWS as LAWS
    from genkit.testing.finding import Finding as Finding
    from genkit.testing.law import Law as Law
    from genkit.testing.law import Verdict as Verdict
    from genkit.testing.law_broken import LawBroken as LawBroken
    from genkit.testing.observer_laws import check_observer as check_observer
    from genkit.testing.verification import Verification as Verification
    from genkit.testing.verification import verify as verify

_OBJECTS = {
    "Case": "genkit.testing.case",
    "Finding": "genkit.testing.finding",
    "LAWS": "genkit.testing.decoding_laws",
    "Law": "genkit.testing.law",
    "LawBroken": "genkit.testing.law_broken",
    "Verdict": "genkit.testing.law",
    "Verification": "genkit.testing.verification",
    "verify": "genkit.testing.verification",
    "check_backend": "genkit.testing.checks_of_decoding",
    "check_cache_manager": "genkit.testing.checks_of_decoding",
    "check_context": "genkit.testing.context_laws",
    "check_decoder": "genkit.testing.checks_of_decoding",
    "check_logits_processor": "genkit.testing.checks_of_parts",
    "check_observer": "genkit.testing.observer_laws",
    "check_sampler": "genkit.testing.checks_of_parts",
    "check_stop_criterion": "genkit.testing.checks_of_parts",
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
    "check_cache_manager",
    "check_decoder",
    "check_logits_processor",
    "check_observer",
    "check_sampler",
    "check_stop_criterion",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _OBJECTS:
        return getattr(import_module(_OBJECTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
