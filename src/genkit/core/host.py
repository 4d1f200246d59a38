"""From the device to the host, with one wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def to_host(*tensors: torch.Tensor) -> list[Any]:
    """The values of several tensors of one row each, as lists, with one wait for the device.

    float64 holds token ids exactly, so that ids, logits and marks can travel together.
    """
    if tensors[0].device.type == "cpu":
        return [tensor.tolist() for tensor in tensors]
    return in_one_copy(tensors)


def in_one_copy(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """What `to_host` does where the tensors live on another device."""
    packed = torch.cat([tensor.flatten().to(torch.float64) for tensor in tensors]).to("cpu")
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [
        part.to(tensor.dtype).view(tensor.shape).tolist()
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def on_host(tensor: torch.Tensor, values: Sequence[float]) -> torch.Tensor:
    """The tensor on the host, made of its values where it lives elsewhere."""
    return tensor if tensor.device.type == "cpu" else torch.tensor(values, dtype=tensor.dtype)
