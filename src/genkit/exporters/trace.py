"""Traces a model of transformers into an ONNX graph.

A program of its own, which the exporter `transformers` runs: tracing patches torch and transformers
and keeps much memory. ``python -m genkit.exporters.trace FOLDER OUT DTYPE`` writes OUT/model.onnx.

No size in the sample is 0 or 1, so that tracing takes none of them for a constant. Which ones may
change is not listed anywhere, where a name could be misspelt: all may.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from genkit.backends.transformers_compat import Signature, shared_layers
from genkit.errors import UnsupportedError
from genkit.exporters.source import load_module

NUM_ROWS, NUM_PAST, NUM_NEW, NUM_KEPT = 2, 5, 3, 2
"""Rows, columns that are in the cache, columns that are fed, positions that get logits."""


def trace(folder: Path, out: Path, dtype: str) -> None:
    """Write the graph of a model.

    Args:
        folder: a model folder of transformers.
        out: where `model.onnx` and its weights are to lie.
        dtype: of weights and cache, `float32` or `float16`.

    Raises:
        ModelLoadError: the model cannot be loaded.
        UnsupportedError: it keeps something else than keys and values.
    """
    from transformers.exporters.configs import OnnxConfig
    from transformers.exporters.exporter_onnx import OnnxExporter

    module = load_module(folder, dtype)
    inputs = sample(module)
    exported = OnnxExporter().export(module, inputs, OnnxConfig(dynamic=True))
    graph = out / "model.onnx"
    OnnxExporter.save_program(exported.program, graph)
    if "logits_to_keep" in inputs:
        from genkit.exporters.graph_edits import count_kept_positions

        count_kept_positions(graph)


def sample(module: Any) -> dict[str, Any]:
    """Arguments of a forward in the middle of a text."""
    layers = shared_layers(module.config)
    if layers is None or getattr(module, "_is_stateful", False):
        raise UnsupportedError(
            f"{type(module).__name__} keeps a state, and graphs with one are not made: genkit "
            "feeds keys and values"
        )
    signature = Signature(module)
    width = NUM_PAST + NUM_NEW
    input_ids = torch.arange(NUM_ROWS * width).view(NUM_ROWS, width) % module.config.vocab_size
    past = _empty_past(layers)
    with torch.no_grad():
        module(input_ids[:, :NUM_PAST], **{str(signature.cache): past}, use_cache=True)
    inputs = {"input_ids": input_ids[:, NUM_PAST:]}
    if signature.mask:
        inputs["attention_mask"] = torch.ones_like(input_ids)
    if signature.positions:
        inputs["position_ids"] = torch.arange(NUM_PAST, width).repeat(NUM_ROWS, 1)
    if signature.logits_to_keep:
        inputs["logits_to_keep"] = torch.arange(NUM_NEW - NUM_KEPT, NUM_NEW)
    return {**inputs, str(signature.cache): past, "use_cache": True}


def _empty_past(shared: list[bool]) -> Any:
    """A cache that keeps every column of every layer; the mask does the windowing.

    The library's own cache forgets what lies before a window, and by how much is a constant in the
    graph.
    """
    from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer

    cache = DynamicCache()
    cache.layers = [DummyLayer() if each else DynamicLayer() for each in shared]
    cache.layer_class_to_replicate = None
    return cache


if __name__ == "__main__":
    trace(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
