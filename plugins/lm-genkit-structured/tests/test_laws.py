"""Both parts keep every law of their kind, with each option that describes a form."""

from typing import Any

import pytest

from genkit.testing import check_logits_processor, check_stop_criterion
from genkit_structured.structured import Structured
from genkit_structured.structured_end import StructuredEnd

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
FORMS: list[dict[str, Any]] = [
    {"json_schema": SCHEMA},
    {"regex": "a+b?"},
    {"choices": ["yes", "no", "nope"]},
    {"lark": 'start: "a" b*\nb: /[x-z]/'},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form)))
def test_structured(form: dict[str, Any]) -> None:
    check_logits_processor(Structured(**form), max_examples=15)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form)))
def test_structured_end(form: dict[str, Any]) -> None:
    check_stop_criterion(StructuredEnd(**form), max_examples=15)
