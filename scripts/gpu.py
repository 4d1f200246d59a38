"""What `scripts/gpu` does: each backend on CUDA, held to the laws and to the CPU, and timed."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_onnx
import torch
import transformers
from bench_pairs import (
    HEADER,
    PROMPT,
    Row,
    alternating,
    seconds_of_decoding,
    seconds_of_generating,
)

from genkit import Kit, Pipeline, backends, caches
from genkit.errors import GenkitError
from genkit.testing import LawBroken, check_backend, check_backends_agree

EXAMPLES = 25
CUDA_PROVIDER = "CUDAExecutionProvider"


def tiny(device: str, dtype: torch.dtype = torch.float32) -> Any:
    """A small random Llama, the same on every device."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=260, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
        initializer_range=0.4, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    module = transformers.LlamaForCausalLM(config).to(dtype)
    return backends.PyTorch.wrap(module.to(device))


def laws(name: str, hold: Callable[[], Any]) -> bool:
    """Hold something to its laws, and say what came of it."""
    start = time.perf_counter()
    try:
        verdicts = hold()
    except (LawBroken, GenkitError) as error:
        print(f"- {name}: BROKEN: {error}", flush=True)
        return False
    kept = sum(verdict.holds is True for verdict in verdicts)
    worst = max(verdict.finding.worst_logit_error for verdict in verdicts)
    silent = len(verdicts) - kept
    print(
        f"- {name}: {kept} hold, {silent} measured or silent, worst logit error {worst:.2g} "
        f"({time.perf_counter() - start:.0f} s)",
        flush=True,
    )
    return True


def held(graph: Path | None) -> Iterator[bool]:
    """Every backend on CUDA, and against the CPU."""
    on_cuda, on_cpu = tiny("cuda"), tiny("cpu")
    some = {"max_examples": EXAMPLES}
    yield laws("pytorch on CUDA", lambda: check_backend(on_cuda, **some))
    yield laws("pytorch, CUDA = CPU", lambda: check_backends_agree(on_cuda, on_cpu, **some))
    if graph is None:
        return
    fast = backends.OnnxRuntime(model=str(graph), provider="cuda").load()
    slow = backends.OnnxRuntime(model=str(graph), provider="cpu").load()
    few = {"max_examples": 3}
    yield laws("onnxruntime on CUDA", lambda: check_backend(fast, **few))
    yield laws("onnxruntime, CUDA = CPU", lambda: check_backends_agree(fast, slow, **few))


def timed(dtype: str, count: int, tokens: int, graph: Path | None) -> Iterator[Row]:
    """Decoding on CUDA in one precision, side by side with the peer."""
    model: Any = Kit().load(backends.PyTorch(model="smollm2", dtype=dtype, device="cuda"))
    prompt = model.tokenizer.encode(PROMPT)
    room = len(prompt) + tokens + 1
    compiled = backends.PyTorch.wrap(model.module, model.tokenizer, compile=True)
    ours = {
        "pytorch": Pipeline(model, stop_criteria=[]),
        "pytorch, compiled": Pipeline(compiled, cache=caches.Static(), stop_criteria=[]),
    }
    if graph is not None:
        on_graph = backends.OnnxRuntime(model=str(graph), provider="cuda").load()
        ours["onnxruntime"] = Pipeline(on_graph, stop_criteria=[])

    def decoding(pipeline: Pipeline) -> Callable[[], float]:
        return lambda: seconds_of_decoding(pipeline, prompt, tokens, room)

    *mine, peer = alternating(
        count, *map(decoding, ours.values()), lambda: seconds_of_generating(model, prompt, tokens)
    )
    for name, side in zip(ours, mine, strict=True):
        yield Row(
            f"decode, SmolLM2 {dtype}, {tokens} tokens, {name}",
            f"{tokens / statistics.median(side):.1f} tokens/s",
            f"transformers.generate {tokens / statistics.median(peer):.1f} tokens/s",
            [b / a for a, b in zip(side, peer, strict=True)],
            "",
        )


def main() -> int:
    """Run everything; the exit status is 1 if there is no GPU, or a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/gpu")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of each timing")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("not measured: PyTorch finds no CUDA device", file=sys.stderr)
        return 1
    transformers.utils.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}\n")
    has_provider = False
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        has_provider = CUDA_PROVIDER in onnxruntime.get_available_providers()
    if not has_provider:
        print("onnxruntime on CUDA: not measured, no onnxruntime-gpu is installed\n")
    graph = bench_onnx.graph("transformers", "fp32") if has_provider else None
    held_all = all(list(held(graph)))
    print(f"\n{HEADER}")
    for dtype in ("float32", "bfloat16"):
        for row in timed(dtype, 5, arguments.tokens, graph if dtype == "float32" else None):
            print(row, flush=True)
    return 0 if held_all else 1


if __name__ == "__main__":
    sys.exit(main())
