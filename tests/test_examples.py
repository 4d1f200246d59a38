"""Every example runs, and every recipe in the repository can be loaded."""

import runpy
from pathlib import Path

import pytest

from genkit.kit import Kit

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
RECIPES = sorted([*EXAMPLES.rglob("*.yaml"), *ROOT.glob("plugins/*/src/**/*.yaml")])


@pytest.fixture(scope="module")
def kit() -> Kit:
    return Kit.from_file(EXAMPLES / "spelling.py")


def test_the_examples_are_all_here() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in [*SCRIPTS, *EXAMPLES.rglob("*.yaml")]:
        assert f"`{path.relative_to(EXAMPLES)}`" in listed


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_example_runs(path: Path, capsys) -> None:
    runpy.run_path(str(path), run_name="__main__")
    if "__main__" in path.read_text():
        assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads(path: Path, kit: Kit) -> None:
    recipe = kit.recipe(path)
    assert kit.recipe(recipe.to_dict()).to_dict() == recipe.to_dict()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs(path: Path, kit: Kit) -> None:
    pipeline = kit.build(path)
    result = pipeline.generate("Name a colour.", max_new_tokens=12, seed=1)
    assert 1 <= result.num_generated_tokens <= 12
    assert pipeline.generate("Name a colour.", max_new_tokens=12, seed=1) == result


def test_the_plugin_of_one_file_does_what_it_says(kit: Kit) -> None:
    result = kit.build(EXAMPLES / "recipes" / "spelling.yaml").generate("Name a colour.")
    assert "e" not in result.text.lower()
    assert result.stop.criterion in {"eos", "even_length"}
