"""The architectures that each exporter accepts: its graph gives the tokens of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zoo
from exporting import needs_genai, needs_optimum, needs_tracer, tokenizer
from genkit.backends import OnnxRuntime, PyTorch
from genkit.exporters import Exporter, GenAI, Optimum, Transformers, export
from genkit.exporters.source import load_module
from genkit.testing import check_backends_agree

NOT_TRACED = {
    "falcon_alibi",  # its graph multiplies bfloat16, which the CPU cannot
    "gemma3n",  # erfinv is no operator of ONNX
    "llama4",  # complex numbers are none of ONNX either
    "deepseek_v32",  # keeps an index beside its keys
}
BUILT = {"llama", "llama3", "qwen3", "gpt_oss"}
OF_OPTIMUM = {
    *("bloom", "codegen", "cohere", "deepseek_v3", "falcon_alibi", "falcon_multi_query", "gemma"),
    *("gemma2", "gemma3", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj"),
    *("granite", "llama", "llama3", "llama_linear", "llama_yarn", "mistral", "mpt", "nemotron"),
    *("olmo2", "opt", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3", "stablelm"),
}


def accepted() -> Iterator[Any]:
    """An exporter, an architecture, and changes to it."""
    for name in sorted((zoo.ATTENTION | zoo.ONE_LENGTH).keys() - NOT_TRACED):
        yield pytest.param(Transformers(), name, {}, id=f"transformers-{name}", marks=needs_tracer)
    for name in sorted(BUILT):
        # GroupQueryAttention wants a multiple of 16.
        wide = {"head_dim": 16}
        yield pytest.param(GenAI(), name, wide, id=f"genai-{name}", marks=needs_genai)
    for name in sorted(OF_OPTIMUM):
        yield pytest.param(Optimum(), name, {}, id=f"optimum-{name}", marks=needs_optimum)


@pytest.mark.slow
@pytest.mark.parametrize(("exporter", "name", "changes"), list(accepted()))
def test_the_graph_of_an_architecture_gives_the_tokens_of_pytorch(
    exporter: Exporter, name: str, changes: Any, save: Callable[..., Path], tmp_path: Path
) -> None:
    folder = save(name, **changes)
    if isinstance(exporter, GenAI):
        tokenizer().save_pretrained(folder)
    done = export(str(folder), tmp_path / "out", exporter)
    assert done.comparison.max_logit_error < 1e-4  # ONNX-16
    graph = OnnxRuntime(model=str(tmp_path / "out"), provider="cpu", threads=1).load()
    module = PyTorch.wrap(load_module(folder), graph.tokenizer)
    assert all(verdict.holds for verdict in check_backends_agree(graph, module, max_examples=6))
