from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

RECIPE = """
version: 1
backend: {type: tiny}
processors: [PROCESSORS]
sampler: {type: categorical}
stop_criteria: [{type: max_new_tokens, limit: 8}]
"""


@pytest.fixture
def recipes(tmp_path: Path) -> Any:
    def write(*processors: str) -> list[Path]:
        paths = []
        for i, each in enumerate(processors):
            path = tmp_path / f"{i}.yaml"
            path.write_text(RECIPE.replace("PROCESSORS", each))
            paths.append(path)
        return paths

    return write


def test_what_differs_is_shown_with_the_reason(genkit: Any, recipes: Any) -> None:
    first, second = recipes(
        "{type: temperature, temperature: 0.5}, {type: top_p, p: 0.9}",
        "{type: top_p, p: 0.8}, {type: temperature, temperature: 0.5}, {type: top_k, k: 3}",
    )
    done = genkit("recipes", "diff", first, second)
    assert (done.status, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[:2] == [f"- {first}", f"+ {second}"]
    assert lines[2].startswith("processors.top_p.p: the mass to keep")
    assert lines[3:5] == ["  - 0.9", "  + 0.8"]
    assert lines[5].startswith("processors.top_k: ")
    assert lines[6] == '  + {"type": "top_k", "k": 3}'
    assert lines[7].startswith("processors: which tokens it keeps depends on the temperature")
    assert lines[8:] == ["  - temperature, top_p", "  + top_p, temperature"]


def test_two_that_mean_the_same(genkit: Any, recipes: Any) -> None:
    first, second = recipes(
        "{type: temperature, temperature: 0.5}, {type: top_k, k: 3}",
        "{type: top_k, k: 3}, {type: temperature, temperature: 0.5}",
    )
    done = genkit("recipes", "diff", first, second)
    assert done.status == 0
    assert "processors: no matter; it keeps the same tokens at any temperature" in done.out
    assert done.out.endswith("They mean the same.\n")
    assert genkit("recipes", "diff", first, first).out == "They mean the same.\n"


def test_as_json(genkit: Any, recipes: Any) -> None:
    first, second = recipes("{type: top_k, k: 3}", "{type: top_k, k: 4}")
    done = genkit("recipes", "diff", first, second, "--json")
    assert done.status == 1
    assert done.json == {
        "first": str(first),
        "second": str(second),
        "same": False,
        "differences": [
            {
                "path": "processors.top_k.k",
                "first": 3,
                "second": 4,
                "matters": True,
                "reason": "how many tokens are kept, at least 1",
            }
        ],
    }
    assert genkit("recipes", "diff", first, first, "--json").json["same"] is True


def test_a_recipe_that_cannot_be_read(genkit: Any, recipes: Any) -> None:
    [first] = recipes("")
    done = genkit("recipes", "diff", first, "nothing.yaml")
    assert (done.status, done.out) == (1, "")
    assert "error: nothing.yaml" in done.err
