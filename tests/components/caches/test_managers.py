"""What holds for every cache manager alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from genkit import Pipeline, caches
from genkit.backends import PyTorch
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.testing import TinyModel

MAKERS: dict[str, Any] = {
    "none": caches.NoCache,
    "dynamic": caches.Dynamic,
    "static": caches.Static,
    "prefix": caches.Prefix,
    "quantized": lambda: caches.Quantized(bits=8, group_size=4),
    "sink_window": lambda: caches.SinkWindow(num_sinks=2, window=5),
}
MODELS = {"tiny": TinyModel, "llama": lambda: zoo.shared("llama")}
every = pytest.mark.parametrize("name", MAKERS)


def start(num_rows: int, num_tokens: int) -> GenerationState:
    rng = RowRandom([0] * num_rows, [0] * num_rows)
    rows = [zoo.prompt(num_tokens, seed=i) for i in range(num_rows)]
    return GenerationState(rows, [num_tokens + 8] * num_rows, rng)


def test_every_manager_is_here() -> None:
    assert {type(make()).__name__ for make in MAKERS.values()} == set(caches.__all__)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "none"])
def test_rows_are_reordered_for_their_whole_length(name: str, model: str) -> None:
    """CACHE-11: 20 columns that hold the number of their row, and then one that the model wrote."""
    made, state = MODELS[model](), start(2, 20)
    cache: Any = MAKERS[name]().acquire(made, state)
    made(state.token_ids, cache)
    state.append(torch.tensor([3, 4]))
    made(state.since(cache.length), cache)
    written = [
        (keys[:, :, -1:].clone(), values[:, :, -1:].clone()) for keys, values in cache.layers
    ]
    kept = torch.tensor([[0, 1, 16, 17, 18, 19, 20]] * 2)
    columns = kept if name == "sink_window" else None
    for i, layer in enumerate(list(cache.layers)):
        numbered = [torch.arange(1.0, 3.0)[:, None, None, None].expand_as(t).clone() for t in layer]
        for tensor, own in zip(numbered, written[i], strict=True):
            tensor[:, :, -1:] = own
        cache.replace(i, *numbered, columns)
    cache.reorder([1, 0, 1])
    assert len(cache.starts) == 3
    for layer, own in zip(cache.layers, written, strict=True):
        for tensor, last in zip(layer, own, strict=True):
            held = tensor[:, :, :-1]
            assert tensor.shape[2] == (7 if name == "sink_window" else 21)
            assert (held - torch.tensor([2.0, 1.0, 2.0])[:, None, None, None]).abs().max() < 0.02
            assert (tensor[:, :, -1:] - last[[1, 0, 1]]).abs().max() < 0.02


@every
def test_one_manager_serves_models_of_different_depth(name: str) -> None:
    """CACHE-12: its options stay, and each cache has the layers of its own model."""
    manager = MAKERS[name]()
    options = manager.model_dump()
    prompt = zoo.prompt(12)
    for num_layers in (2, 4, 2):
        model = PyTorch.wrap(zoo.build("llama", num_hidden_layers=num_layers))
        fresh = Pipeline(model, cache=MAKERS[name]()).generate(prompt, seed=0, max_new_tokens=4)
        assert Pipeline(model, cache=manager).generate(prompt, seed=0, max_new_tokens=4) == fresh
        assert manager.model_dump() == options
        if name != "none":
            state = start(1, 12)
            cache: Any = manager.acquire(model, state)
            model(state.since(cache.length), cache)
            assert len(cache.layers) == num_layers


@pytest.mark.parametrize("model", MODELS)
def test_saying_nothing_of_a_cache_is_saying_a_new_dynamic_one(model: str) -> None:
    """CACHE-25: no argument, None, and an empty cache that was made beforehand."""
    made = MODELS[model]()

    class Prepared:
        """Hands out a cache that was made before the run, and is empty."""

        def acquire(self, model: Any, state: GenerationState) -> Any:
            cache = model.new_cache(state)
            assert cache.length == 0
            return cache

        def release(self, cache: Any, state: GenerationState) -> None:
            pass

    prompts = [zoo.prompt(9), zoo.prompt(4)]
    answers = [
        Pipeline(made, **cache).generate(prompts, seed=0, max_new_tokens=12)
        for cache in ({}, {"cache": None}, {"cache": caches.Dynamic()}, {"cache": Prepared()})
    ]
    assert answers[0][0].num_generated_tokens == 12
    assert all(answer == answers[0] for answer in answers)


@every
def test_a_manager_serves_a_second_run_as_it_did_the_first(name: str) -> None:
    """CACHE-24: the same prompts three times, longer than any window."""
    for model in (zoo.shared("llama"), zoo.shared("mistral")):
        if name == "sink_window" and "positions" not in model.supports:
            continue
        prompts = [zoo.prompt(20), zoo.prompt(13)]
        manager = MAKERS[name]()
        firsts, answers = [], []
        for _ in range(3):
            steps = list(Pipeline(model, cache=manager).decode(prompts, max_new_tokens=4))
            firsts.append(steps[0].raw_logits)
            answers.append([step.next_ids.tolist() for step in steps])
        assert answers[1:] == answers[:1] * 2
        assert all((logits - firsts[0]).abs().max() < 1e-5 for logits in firsts)
