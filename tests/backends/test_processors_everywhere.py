"""REP-07: processors give the same on every backend, since no backend has any of its own.

One small model is a module of transformers, a graph, and a script that repeats the raw logits of
either of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch

import graphs
from genkit import Pipeline, processors, samplers, stopping
from genkit.backends import PyTorch
from genkit.testing import ScriptedModel
from graphs import HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, NUM_LAYERS, WIDTH

PROMPTS = [[5, 3, 9, 5, 3], [7], [22, 1, 8, 1, 8, 1, 8, 60, 4]]
SEEDS = [1, 2, 3]
NUM_TOKENS = 8

PARTS = [
    processors.RepetitionPenalty(penalty=1.4),
    processors.RepetitionPenalty(penalty=1.4, base="logprobs", window=4),
    processors.FrequencyPenalty(penalty=2.0, presence=1.0, scope="all"),
    processors.PresencePenalty(penalty=3.0),
    processors.PromptRepetitionPenalty(penalty=0.5),
    processors.Dry(multiplier=4.0, allowed_length=1, breakers=()),
    processors.NoRepeatNGram(n=1),
    processors.PromptNoRepeatNGram(n=1),
    processors.BadWords(token_ids=[tuple(PROMPTS[0]), *((i,) for i in range(40))]),
    processors.SuppressTokens(token_ids=tuple(range(0, 97, 2))),
    processors.TokenBias(biases={60: 6.0, 4: "-inf"}),
    processors.Temperature(temperature=2.0),
    processors.TopK(k=5),
    processors.TopP(p=0.6),
    processors.MinP(min_p=0.2),
    processors.TypicalP(p=0.5),
    processors.TopNSigma(n=1.0),
    processors.TailFree(z=0.7),
    processors.Xtc(probability=0.5, threshold=0.05),
]
EACH = [pytest.param([part], id=part.type) for part in PARTS]


class Run(NamedTuple):
    """What rows were given and made of it, step by step.

    Attributes:
        raw: the model's logits, `[rows, steps, vocab]`.
        logits: what the sampler got, in the same shape.
        token_ids: `[rows, steps]`.
    """

    raw: torch.Tensor
    logits: torch.Tensor
    token_ids: torch.Tensor


def run(model: Any, parts: list[Any]) -> Run:
    pipeline = Pipeline(
        model,
        processors=parts,
        sampler=samplers.Categorical(),
        stop_criteria=[stopping.MaxNewTokens(limit=NUM_TOKENS)],
    )
    with torch.no_grad():
        steps = [
            (step.raw_logits.clone(), step.logits.clone(), step.next_ids)
            for step in pipeline.decode(PROMPTS, seeds=SEEDS)
        ]
    return Run(*(torch.stack(each, dim=1) for each in zip(*steps, strict=True)))


@cache
def module() -> Any:
    """The model of `graphs`, which is a Llama whose second half of each layer adds nothing."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=graphs.VOCAB_SIZE,
        hidden_size=WIDTH,
        intermediate_size=8,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_KV_HEADS,
        head_dim=HEAD_DIM,
        rope_theta=100.0,  # for transformers 4
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=None,
        max_position_embeddings=graphs.CONTEXT_LENGTH,
        tie_word_embeddings=False,
    )
    given = {name: torch.from_numpy(value).float() for name, value in graphs.weights().items()}
    sizes = [n * HEAD_DIM for n in (NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS)]
    weights = {"model.embed_tokens": given["embedding"], "lm_head": given["head"].T}
    for i in range(NUM_LAYERS):
        heads = given[f"qkv{i}"].split(sizes, dim=1)
        for name, head in zip("qkv", heads, strict=True):
            weights[f"model.layers.{i}.self_attn.{name}_proj"] = head.T
        weights[f"model.layers.{i}.self_attn.o_proj"] = given[f"out{i}"].T
        weights[f"model.layers.{i}.mlp.down_proj"] = torch.zeros(WIDTH, 8)
    llama = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in weights.items():
            llama.get_parameter(f"{name}.weight").copy_(weight)
    return llama


@cache
def model(backend: str) -> Any:
    return PyTorch.wrap(module()) if backend == "pytorch" else graphs.shared("optimum")


def test_module_and_graph_are_the_same_model() -> None:
    ids = PROMPTS[2]
    expected = graphs.logits(ids)
    with torch.no_grad():
        found = module()(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("parts", [*EACH, pytest.param(PARTS, id="chain")])
def test_processed_logits_and_tokens_are_the_same(parts: list[Any]) -> None:
    runs = [run(model(backend), parts) for backend in ("pytorch", "onnxruntime")]
    for found in runs:
        replayed = run(ScriptedModel(found.raw), parts)
        assert torch.equal(replayed.raw, found.raw)
        assert torch.equal(replayed.logits, found.logits)
        assert torch.equal(replayed.token_ids, found.token_ids)
    one, other = runs
    assert torch.equal(one.token_ids, other.token_ids)
    torch.testing.assert_close(one.logits, other.logits, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("parts", EACH)
def test_the_part_does_something(parts: list[Any]) -> None:
    assert not torch.equal(run(model("pytorch"), parts).logits, run(model("pytorch"), []).logits)
