"""How vectors of whole chains are reproduced: through the importer of their engine.

The parameters become settings under the engine's own names, these a recipe, and its parts what is
compared. So it is the importers that are tested: their order, their meaning, and what they leave
out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from genkit.plugins.manager import PluginManager
from genkit.plugins.registry import Registry
from genkit.recipes.importers import import_recipe
from genkit.recipes.recipe import Recipe
from golden_samplers import start
from vectors import PROBABILITY, RELATIVE, Vector, apply, compare, numbers


@functools.cache
def registry() -> Registry:
    return PluginManager(entry_points=False).registry


def recipe_of(engine: str, settings: dict[str, Any]) -> Recipe:
    return import_recipe(engine, settings, registry=registry()).recipe


def renamed(params: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Parameters under other names; those that are not named keep theirs."""
    return {names.get(name, name): value for name, value in params.items()}


def limit_of(recipe: Recipe, prompts: list[list[int]]) -> int:
    """The most tokens that a row may reach."""
    bounds = [criterion.bound(len(prompts[0])) for criterion in recipe.stop_criteria]
    return min(bound for bound in bounds if bound is not None)


# transformers


def transformers(vector: Vector) -> None:
    recipe = recipe_of("hf", vector.params)
    prompts, _ = vector.prompt_and_generated()
    found = vector.apply(recipe.processors, limit=limit_of(recipe, prompts))
    if any(part.type == "renormalize" for part in recipe.processors):
        compare_differences(vector, found)
    else:
        vector.compare(found)


def compare_differences(vector: Vector, found: torch.Tensor) -> None:
    """A log-probability near 0 is a difference, and as exact as what it is a difference of."""
    expected = numbers(vector["out_logits"])
    error = (found - expected).abs().nan_to_num(0.0)
    near_zero = error <= RELATIVE * vector.logits.abs().amax(-1, keepdim=True)
    vector.compare(torch.where(near_zero, expected, found))


def transformers_steps(vector: Vector) -> None:
    """Every step of a whole answer; without draws its tokens as well."""
    recipe = recipe_of("hf", vector.params)
    is_greedy = recipe.sampler.type == "greedy"
    for step in vector["steps"]:
        history = step["history"]
        found = apply(
            recipe.processors,
            numbers(step["logits"]),
            prompts=history["prompt"],
            generated=history["generated"],
        )
        compare(step, found)
        probs = found.softmax(-1)
        assert (probs - numbers(step["out_probs"])).abs().max() <= PROBABILITY
        assert probs[0, step["token"]] > 0
        assert not is_greedy or int(found.argmax()) == step["token"]


# llama.cpp

LLAMA_CPP = {
    "last_n": "repeat_last_n",
    "repeat": "repeat_penalty",
    "frequency": "frequency_penalty",
    "presence": "presence_penalty",
    "temp": "temperature",
    "order": "samplers",
}


def llama_cpp(vector: Vector) -> None:
    """The logits, and the draw from them in the order in which the engine leaves its candidates."""
    params = renamed(vector.params, LLAMA_CPP)
    params["samplers"] = [name for name in params["samplers"] if name != "logit_bias"]
    params["dry_sequence_breakers"] = ["none"]
    recipe = recipe_of("llama.cpp", params)
    if vector.get("nan_entropy"):
        scaled(vector, recipe)
        return
    found = vector.apply(recipe.processors)
    if is_split(vector, found):  # which of equal ones stay is an accident of the engine's sort
        Vector({**vector.raw, "tie_split": True}).compare(found)
        found = numbers(vector["out_logits"])
    vector.compare(found)
    drawn(vector, recipe, found, vector["draw"]["seed"], vector["draw"]["token"])


def is_split(vector: Vector, found: torch.Tensor) -> bool:
    """Whether the tokens that only one of two results keeps were equal to begin with."""
    disputed = (found > -math.inf) != (numbers(vector["out_logits"]) > -math.inf)
    return len(vector.logits[disputed].unique()) == 1


def scaled(vector: Vector, recipe: Recipe) -> None:
    """Which tokens the engine keeps here follows no rule; their logits are those of the chain."""
    truncations = ("top_n_sigma", "typical_p", "top_p", "min_p")
    *others, last = (part for part in recipe.processors if part.type not in truncations)
    assert last.type.endswith("temperature")
    before, after = vector.apply(others), numbers(vector["out_logits"])
    temperatures = (before / after)[after > -math.inf]
    torch.testing.assert_close(
        temperatures, temperatures[:1].expand_as(temperatures), rtol=1e-6, atol=0
    )


def llama_cpp_python(vector: Vector) -> None:
    """The logits, as far as no sampler changes them, and the choice from them."""
    names = {"temp": "temperature", "last_n": "last_n_tokens_size"}
    recipe = recipe_of("llama-cpp-python", renamed(vector.params, names))
    found = vector.apply(recipe.processors)
    match recipe.sampler.type:
        case "mirostat":
            sampler, state, _ = start(recipe.sampler, found.shape[1])
            probs = sampler.truncated(found, sampler.mu.at(state))
            assert (probs - numbers(vector["out_probs"])).abs().max() <= PROBABILITY
        case "greedy":
            vector.compare(found, probs=False)
        case _:
            vector.compare(found)
    drawn(vector, recipe, found, vector.params["seed"], vector["token"])


def drawn(vector: Vector, recipe: Recipe, found: torch.Tensor, seed: int, token: int) -> None:
    """The sampler's choice with the engine's numbers, over the engine's order of candidates."""
    kept = vector["out_order"]
    order = [*kept, *(i for i in range(found.shape[1]) if i not in kept)]
    sampler, state, rng = start(recipe.sampler, found.shape[1], seed)
    rng.num_candidates = len(kept) if recipe.sampler.type == "mirostat" else 2
    assert order[int(sampler(state, found[:, order]))] == token


# vLLM, SGLang and mlx-lm

PENALTIES = {
    "repetition": "repetition_penalty",
    "frequency": "frequency_penalty",
    "presence": "presence_penalty",
}


def vllm(vector: Vector) -> None:
    vector.compare(vector.apply(recipe_of("vllm", renamed(vector.params, PENALTIES)).processors))


def sglang(vector: Vector) -> None:
    """Recorded are probabilities; one of 0 is either removed, or too small for float32."""
    params = renamed(vector.params, PENALTIES)
    params["top_k"] = params["top_k"] or -1
    found = vector.apply(recipe_of("sglang", params).processors).softmax(-1)
    expected = numbers(vector["out_probs"])
    if vector.get("tie_split"):
        found, expected = found.sort(-1).values, expected.sort(-1).values
    assert torch.equal(found > 0, expected > 0)
    assert (found - expected).abs().max() <= PROBABILITY


def mlx(vector: Vector) -> None:
    """The engine goes on with log-probabilities after its processors: the same distribution."""
    names = {"context_size": "repetition_context_size"}
    params = renamed(vector.params, names)
    for name in ("presence", "frequency"):
        params[f"{name}_context_size"] = vector.params["context_size"]
    recipe = recipe_of("mlx", params)
    found = vector.apply(recipe.processors)
    shift = numbers(vector["out_logits"]).amax(-1, keepdim=True) - found.amax(-1, keepdim=True)
    compare_differences(vector, found + shift)


OPS: dict[tuple[str, str], Callable[[Vector], None]] = {
    ("transformers", "chain"): transformers,
    ("transformers", "generate_steps"): transformers_steps,
    ("llama.cpp", "chain"): llama_cpp,
    ("llama.cpp", "chain_llama_cpp_python"): llama_cpp_python,
    ("vllm", "chain"): vllm,
    ("sglang", "chain"): sglang,
    ("mlx-lm", "chain"): mlx,
}
"""By engine and operation: reproduces a vector, or fails."""

_LISTED = (
    "behind top_n_sigma the engine's dynamic temperature divides by the entropy that all its "
    "candidates could have, those at -inf too; here a forbidden token is none"
)

EXCUSED: dict[str, str] = {"llama.cpp/chain/0079": _LISTED, "llama.cpp/chain/0139": _LISTED}
"""Vectors that are not reproduced, and why."""
