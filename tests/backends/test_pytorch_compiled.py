"""Compiled decode steps. PyTorch's own interpreter stands in for its compiler where time counts."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from genkit import Pipeline, backends, caches, stopping
from genkit.backends.model_facts import facts_of
from genkit.backends.pytorch_compiled import buffer_size
from genkit.backends.pytorch_model import PyTorchModel
from genkit.errors import UnsupportedError

TOLERANCE = 1e-4  # float32, logits of order 10


@pytest.fixture(autouse=True)
def _no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch writes down all that it traces as soon as anybody listens, and pytest does.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


def compiled(module: Any) -> PyTorchModel:
    """The model, traced as for a compilation and then interpreted."""
    return PyTorchModel(module, facts_of(module), compiler="eager")


def pipeline(model: Any, limit: int = 12, **options: Any) -> Pipeline:
    criteria = [stopping.MaxNewTokens(limit=limit)]
    return Pipeline(model, stop_criteria=criteria, **options)


@pytest.mark.parametrize(
    ("columns", "size"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 256), (2048, 2048)]
)
def test_buffers_are_powers_of_two(columns: int, size: int) -> None:
    assert buffer_size(columns) == size


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mistral", "gemma3", "gpt2", "opt", "bloom", "mixtral", "qwen3", "gemma3n")
        ),
    ],
)
def test_compiled_logits_are_the_plain_ones_in_every_company(name: str, lab: Any) -> None:
    plain, model = lab.shared(name), compiled(lab.shared(name).module)
    prompts = [lab.prompt(7), lab.prompt(3), lab.prompt(6)]
    state = lab.state_of(model, prompts, room=50)
    one, other = model.new_static_cache(state), plain.new_cache(state)
    for step in range(16):
        given, wanted = model(state.since(one.length), one), plain(state.since(other.length), other)
        assert (given - wanted).abs().max() < TOLERANCE
        state.append(wanted.argmax(-1))
        if step in (4, 8, 12):  # three rows, two, one with padding, one without
            kept = [0, 1] if step == 4 else [1] if step == 8 else [0, 0]
            for holder in (one, other, state):
                holder.reorder(kept)
        if step == 6:
            for cache in (one, other):
                cache.crop(cache.length - 2)
    assert one.num_bytes
    assert model.compiled is not None
    assert model.compiled.num_compilations == 2  # several rows; one with padding


def test_one_compilation_serves_a_text_of_any_length(lab: Any) -> None:
    model = compiled(lab.shared("llama").module)
    torch._dynamo.utils.counters.clear()
    plain = pipeline(lab.shared("llama"), limit=100).generate(lab.prompt(5))
    for _ in range(2):
        result = pipeline(model, limit=100, cache=caches.Static()).generate(lab.prompt(5))
        assert result.token_ids == plain.token_ids
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    pipeline(model, limit=20, cache=caches.Static()).generate(lab.prompt(5))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # another size
    assert model.compiled is not None and model.compiled.num_compilations == 2


def test_it_is_compiled_before_the_first_token(lab: Any) -> None:
    model = compiled(lab.shared("llama").module)
    steps = pipeline(model, cache=caches.Static()).decode(lab.prompt(5))
    next(steps)
    assert model.compiled is not None and model.compiled.num_compilations == 1
    steps.close()


def test_a_model_that_cannot_be_compiled_is_refused_before_the_first_token(lab: Any) -> None:
    module = lab.build("llama")
    attention = module.model.layers[0].self_attn
    inner = attention.forward

    def forward(*args: Any, **options: Any) -> Any:
        torch._dynamo.graph_break()
        return inner(*args, **options)

    attention.forward = forward
    steps = pipeline(compiled(module), cache=caches.Static()).decode(lab.prompt(5))
    with pytest.raises(UnsupportedError, match="cannot compile LlamaForCausalLM"):
        next(steps)


def test_a_compilation_that_fails_leaves_the_cache_as_it_was(lab: Any) -> None:
    model = compiled(lab.build("llama"))
    state = lab.state_of(model, [lab.prompt(5)])
    cache = model.new_static_cache(state)
    model.compiled.prepare = lambda cache: (_ for _ in ()).throw(UnsupportedError("no"))
    with pytest.raises(UnsupportedError):
        model(state.token_ids, cache)
    assert cache.length == 0


def test_it_goes_with_the_static_cache_only(lab: Any) -> None:
    model = compiled(lab.shared("llama").module)
    for cache in (caches.Dynamic(), caches.NoCache()):
        with pytest.raises(UnsupportedError, match=rf"'{cache.type}' does not.*type: static"):
            pipeline(model, cache=cache)


def test_recurrent_models_are_neither_compiled_nor_cut_into_pieces(lab: Any) -> None:
    module = lab.shared("mamba").module
    with pytest.raises(UnsupportedError, match=r"compile: true.*recurrent"):
        backends.PyTorch.wrap(module, compile=True)
    with pytest.raises(UnsupportedError, match=r"prefill_chunk.*recurrent"):
        backends.PyTorch.wrap(module, prefill_chunk=4)


def test_without_a_static_cache_the_model_itself_runs_plainly(lab: Any) -> None:
    model = compiled(lab.shared("llama").module)
    ids = lab.prompt(5)
    state = lab.state_of(model, [ids])
    given = model(state.token_ids, model.new_cache(state))
    assert torch.equal(given, lab.shared("llama")(state.token_ids, model.new_cache(state)))


@pytest.mark.slow
def test_a_module_that_is_changed_is_compiled_anew(lab: Any) -> None:
    module = lab.build("llama")
    model = compiled(module)
    ids = lab.prompt(9)

    def check() -> None:
        wanted = pipeline(backends.PyTorch.wrap(module)).generate(ids)
        assert pipeline(model, cache=caches.Static()).generate(ids).token_ids == wanted.token_ids

    check()
    attention = module.model.layers[0].self_attn
    hook = attention.o_proj.register_forward_hook(lambda part, inputs, output: output * 3)
    check()
    hook.remove()
    check()
    attention.scaling = 0.9
    check()
    with torch.no_grad():
        module.model.layers[1].mlp.up_proj.weight.mul_(2)
    check()


class Scaled(torch.nn.Module):
    """An activation with a plain number in it."""

    factor = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x) * self.factor


def test_numbers_of_one_hash_and_the_configuration_count_too(lab: Any) -> None:
    """-1 and -2 have the same hash."""
    module = lab.build("gemma2")
    for layer in module.model.layers:
        layer.mlp.act_fn = Scaled()
        layer.mlp.act_fn.factor = -1
    model = compiled(module)

    def change_numbers() -> None:
        for layer in module.model.layers:
            layer.mlp.act_fn.factor = -2

    def change_configuration() -> None:
        module.config.final_logit_softcapping = 0.5

    for change in (lambda: None, change_numbers, change_configuration):
        change()
        runs = [
            list(pipeline(each, cache=caches.Static()).decode(lab.prompt(5), max_new_tokens=6))
            for each in (model, backends.PyTorch.wrap(module))
        ]
        for one, other in zip(*runs, strict=True):
            assert (one.raw_logits - other.raw_logits).abs().max() < 1e-4


@pytest.mark.slow
def test_the_real_compiler_gives_the_same_tokens(lab: Any) -> None:
    model = backends.PyTorch.wrap(lab.shared("llama").module, compile=True)
    wanted = pipeline(lab.shared("llama"), limit=40).generate([lab.prompt(9), lab.prompt(4)])
    given = pipeline(model, limit=40, cache=caches.Static()).generate(
        [lab.prompt(9), lab.prompt(4)]
    )
    assert [r.token_ids for r in given] == [r.token_ids for r in wanted]
