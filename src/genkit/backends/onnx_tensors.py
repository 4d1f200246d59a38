"""Tensors that PyTorch and ONNX Runtime share, without a copy."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort
import torch

from genkit.backends.onnx_graph import Graph, Port
from genkit.errors import ModelOutputError


def lend(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous tensor as a value of ONNX Runtime."""
    return ort.OrtValue.from_dlpack(tensor)


def borrow(value: Any) -> torch.Tensor:
    """The memory of a value of ONNX Runtime as a tensor."""
    tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(value)
    return tensor


def bind(binding: Any, port: Port, tensor: torch.Tensor) -> None:
    """Feed a tensor, in the type and the form that the graph takes."""
    if tensor.dtype != port.dtype:
        tensor = tensor.to(port.dtype)
    binding.bind_ortvalue_input(port.name, lend(tensor.contiguous()))


def bind_text(
    binding: Any, graph: Graph, input_ids: torch.Tensor, cache: Any, n: int, num_slots: int
) -> None:
    """Feed ids, which slots hold a token, and where each stands, as far as the graph takes it.

    Args:
        binding: of one run.
        graph: says what is taken.
        input_ids: int64 `[batch, columns]`, the last columns of all.
        cache: the `ColumnCache` of what came before, perhaps wrapped.
        n: how many of the columns it does not hold.
        num_slots: how wide a mask is.
    """
    batch, num_columns = input_ids.shape
    bind(binding, graph.ids, input_ids)
    if graph.mask is not None:
        mask = cache.mask(n)
        bind(binding, graph.mask, input_ids.new_ones((batch, num_slots)) if mask is None else mask)
    if graph.positions is not None:
        positions = cache.positions(num_columns, cache.length + n - num_columns)
        bind(binding, graph.positions, positions.expand(batch, -1))


def bind_facts(
    binding: Any,
    graph: Graph,
    device: torch.device,
    *,
    past: int,
    num_columns: int,
    num_kept: int,
) -> None:
    """Feed what depends on numbers alone, as far as the graph takes it.

    Args:
        binding: of one run.
        graph: says what is taken.
        device: of the tensors.
        past: columns before those that are fed.
        num_columns: how many are fed.
        num_kept: how many of the last ones get logits.
    """
    if graph.columns is not None:
        bind(binding, graph.columns, torch.arange(past, past + num_columns, device=device))
    if graph.kept is not None:
        kept = torch.arange(num_columns - num_kept, num_columns, device=device)
        bind(binding, graph.kept, kept)
    if graph.num_kept is not None:
        kept = torch.full([1] * len(graph.num_kept.shape), num_kept, device=device)
        bind(binding, graph.num_kept, kept)
    if graph.has_past is not None:
        bind(binding, graph.has_past, torch.full([1], past > 0, device=device))


def run(session: Any, binding: Any, device: torch.device) -> None:
    """Run what is bound. On a GPU ONNX Runtime has its own stream: each waits for the other.

    Raises:
        ModelOutputError: ONNX Runtime could not.
    """
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    try:
        session.run_with_iobinding(binding)
    except Exception as error:  # its classes have no common base but this one
        words = " ".join(str(error).split())
        raise ModelOutputError(f"ONNX Runtime could not run the graph: {words}") from error
    if device.type == "cuda":
        binding.synchronize_outputs()
