"""Graphs that exporters have written give what PyTorch gives, from the library to the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from genkit import Pipeline, caches, load_recipe, stopping
from genkit.backends import PyTorch
from genkit.backends.onnxruntime_ import OnnxRuntime
from genkit.cli import main
from genkit.errors import ModelLoadError
from genkit.testing import check_backend, check_backends_agree

DATA = Path(__file__).parents[1] / "data" / "onnx"
CHANGES: dict[str, dict[str, Any]] = {
    "optimum": {},
    "transformers": {},
    "genai": {"head_dim": 16},
    "genai-int4": {"head_dim": 16},
}
FULL = ("optimum", "transformers", "genai")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def load() -> Callable[[str], Any]:
    """The model of a folder, and the same one in PyTorch; each is loaded once."""
    loaded: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in loaded:
            graph = OnnxRuntime(model=str(DATA / name), provider="cpu", threads=1).load()
            loaded[name] = graph, PyTorch.wrap(zoo.build("llama", **CHANGES[name]))
        return loaded[name]

    return get


def test_every_folder_is_tried() -> None:
    assert {path.name for path in DATA.iterdir() if path.is_dir()} == set(CHANGES)


@pytest.mark.parametrize("name", FULL)
def test_logits_of_padded_rows_are_those_of_pytorch(name: str, load: Any, lab: Any) -> None:
    graph, module = load(name)
    prompts = [lab.prompt(n, n) for n in (12, 5, 9, 1)]
    follow = torch.tensor([lab.prompt(20, n) for n in range(4)])
    given = lab.logits_along(graph, prompts, follow)
    assert (given - lab.logits_along(module, prompts, follow)).abs().max() < TOLERANCE


@pytest.mark.parametrize("past", [0, 1, 9])
@pytest.mark.parametrize(("batch", "n"), [(1, 1), (1, 7), (3, 1), (2, 13)])
@pytest.mark.parametrize("name", FULL)
def test_no_size_is_baked_in(name: str, batch: int, n: int, past: int, load: Any, lab: Any) -> None:
    """ONNX-16."""
    prompts = [lab.prompt(past + n, i) for i in range(batch)]
    both = []
    for model in load(name):
        state = lab.state_of(model, prompts)
        cache = model.new_cache(state)
        if past:
            model(state.token_ids[:, :past], cache)
        both.append(model(state.token_ids[:, past:], cache))
    assert (both[0] - both[1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("manager", [caches.NoCache, caches.Dynamic, caches.Prefix])
def test_tokens_are_those_of_pytorch(name: str, manager: Any, load: Any, lab: Any) -> None:
    graph, module = load(name)
    prompts = [lab.prompt(n, n) for n in (12, 5, 9)]
    limit = [stopping.MaxNewTokens(limit=24)]
    first, second = (
        [r.token_ids for r in Pipeline(m, cache=manager(), stop_criteria=limit).generate(prompts)]
        for m in (graph, module)
    )
    assert first == second


def test_what_the_graphs_can_do(load: Any) -> None:
    always = {"crop", "block", "ragged", "reorder", "layers"}
    for name in CHANGES:
        more = {"static"} if name.startswith("genai") else {"positions"}
        assert load(name)[0].supports == always | more


def test_a_graph_with_rounded_weights_is_near_the_model(load: Any, lab: Any) -> None:
    """Its activations are rounded too, so only the size of the error is looked at."""
    graph, module = load("genai-int4")
    assert graph.file.rounds_activations
    assert not any(load(name)[0].file.rounds_activations for name in FULL)
    prompts, follow = [lab.prompt(12), lab.prompt(5)], torch.tensor([lab.prompt(20)] * 2)
    given, along = (lab.logits_along(m, prompts, follow) for m in (graph, module))
    assert 1e-3 < (given - along).square().mean().sqrt() < 0.5 * along.std()
    again = lab.logits_along(graph, prompts[1:], follow[1:])
    assert (given[1:] - again).square().mean().sqrt() < 0.1 * along.std()


@pytest.mark.parametrize("name", FULL)
def test_pytorch_and_onnx_runtime_agree(name: str, load: Any) -> None:
    """A law of `genkit.testing`, tried on a few cases; `slow` tests try more."""
    verdicts = check_backends_agree(*load(name), max_examples=2)
    assert all(verdict.holds for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_every_law_of_a_backend_holds(name: str, load: Any) -> None:
    verdicts = check_backend(load(name)[0], max_examples=25)
    assert {v.law.name for v in verdicts if not v.holds} == {"streamed = whole"}  # no tokenizer
    assert all(v.holds for v in check_backends_agree(*load(name), max_examples=25))


# --- recipes and commands ----------------------------------------------------------------


RECIPE = """\
version: 1
backend: {{type: {backend}, model: {folder}, {more}}}
sampler: {{type: greedy}}
stop_criteria:
  - {{type: max_new_tokens, limit: 12}}
"""


@pytest.fixture(params=FULL)
def recipes(request: pytest.FixtureRequest, save_folder: Any, tmp_path: Path) -> dict[str, Path]:
    """One recipe for each backend, on one folder that has weights, graph and tokenizer."""
    folder = save_folder("llama", **CHANGES[request.param])
    shutil.copytree(DATA / request.param, folder, dirs_exist_ok=True)
    paths = {}
    for backend, more in (("pytorch", "device: cpu"), ("onnxruntime", "provider: cpu, threads: 1")):
        paths[backend] = tmp_path / f"{backend}.yaml"
        text = RECIPE.format(backend=backend, folder=folder, more=more)
        paths[backend].write_text(text)
    return paths


def test_a_recipe_runs_on_either_backend(recipes: dict[str, Path]) -> None:
    first, second = (load_recipe(recipes[name]).build().generate("!#5$A") for name in recipes)
    assert first.token_ids == second.token_ids
    assert first.text == second.text
    assert len(first.token_ids) == 12


def test_the_commands_run_on_either_backend(
    recipes: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str, backend: str) -> Any:
        assert (
            main([arguments[0], "--recipe", str(recipes[backend]), *arguments[1:], "--json"]) == 0
        )
        return json.loads(capsys.readouterr().out)

    first, second = (run("generate", "!#5$A", backend=name)["results"][0] for name in recipes)
    assert first["token_ids"] == second["token_ids"]
    first, second = (run("score", "!#5$A", backend=name) for name in recipes)
    assert first["logprob"] == pytest.approx(second["logprob"], abs=1e-3)
    model = run("doctor", backend="onnxruntime")["model"]
    assert model["provider"] == "CPUExecutionProvider"
    assert model["graph"].endswith("model.onnx")
    assert model["vocab_size"] == zoo.VOCAB_SIZE


def test_a_recipe_over_a_folder_without_a_graph(
    save_folder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    folder = save_folder()
    path.write_text(RECIPE.format(backend="onnxruntime", folder=folder, more="threads: 1"))
    with pytest.raises(ModelLoadError, match="has no ONNX graph .*genkit export"):
        load_recipe(path).build()
    assert main(["generate", "--recipe", str(path), "x"]) == 1
    assert "has no ONNX graph" in capsys.readouterr().err
