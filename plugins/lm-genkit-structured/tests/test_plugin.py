"""The plugin registers its parts and imports nothing for it; recipes may name them."""

import importlib.metadata
import subprocess
import sys
from typing import Any, Literal

import pytest
import torch

import genkit_structured
from genkit import Kit
from genkit.backends.base import Backend
from genkit.testing import ByteTokenizer, ScriptedModel

LISTING = """
import sys
import genkit_structured
from genkit import Kit

kit = Kit(plugins=[genkit_structured], entry_points=False)
print(*(part.name for part in kit.parts() if part.name.startswith("structured")))
print(*{"llguidance", "torch", "transformers"} & set(sys.modules))
"""


class LovesBlanks(Backend):
    """Wants a line break, or else a blank, or else a brace, or else a 1."""

    type: Literal["loves_blanks"] = "loves_blanks"

    def load(self, **_: Any) -> ScriptedModel:
        logits = torch.zeros(1, 260)
        logits[0, [*b"\n }1"]] = torch.tensor([9.0, 8.0, 7.0, 6.0])
        logits[0, 257] = -9.0
        return ScriptedModel(logits, tokenizer=ByteTokenizer(), eos_token_ids=[257])


def test_listing_imports_nothing_heavy() -> None:
    out = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, check=True
    ).stdout
    assert out.split("\n") == ["structured structured_end", "", ""]


@pytest.mark.parametrize("ends", [["eos"], ["eos", "structured_end"]])
def test_a_recipe_gets_bounded_blanks_by_default(ends: list[str]) -> None:
    import genkit.plugins

    class Plugin:
        @genkit.plugins.hookimpl
        def genkit_register_backends(self) -> list[type[Backend]]:
            return [LovesBlanks]

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"json_schema": {**schema, "additionalProperties": False}}
    options = {"eos": {}, "structured_end": form}
    recipe = {
        "version": 1,
        "backend": {"type": "loves_blanks"},
        "processors": [{"type": "structured", **form}],
        "stop_criteria": [{"type": end, **options[end]} for end in ends],
    }
    kit = Kit(plugins=[genkit_structured, Plugin()], entry_points=False)
    pipeline = kit.build(recipe)
    result = pipeline.generate("x", max_new_tokens=200)
    assert (result.text, result.finish_reason) == ('{\n"a"\n:\n1\n}', "stop")
    assert pipeline.generate("x", max_new_tokens=5).finish_reason == "length"


def test_the_entry_point_leads_to_the_module() -> None:
    try:
        importlib.metadata.distribution("lm-genkit-structured")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    entries = importlib.metadata.entry_points(group="genkit")
    assert [e.load() for e in entries if e.name == "structured"] == [genkit_structured]
