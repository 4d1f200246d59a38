"""Tells sets of weights apart: by their bytes, and cheaply by whether they were written to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

Tensors = Iterable[tuple[str, torch.Tensor]]


def fingerprint_of(facts: Mapping[str, Any], tensors: Tensors) -> str:
    """A SHA-256 over plain facts and over name, type, shape and bytes of every tensor.

    Args:
        facts: what else makes a difference; values that JSON has no form for count as their text.
        tensors: names and tensors, in an order that is always the same.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, tensor in tensors:
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        content = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(content.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def version_of(tensors: Tensors) -> int:
    """A number that is another one after a tensor was written to, moved or exchanged.

    Of each tensor a few values are read, so that a write that PyTorch does not count, through
    `.data`, numpy or in inference mode, is noticed too unless it leaves all of these as they were.
    """
    return hash(
        tuple(
            (
                name,
                tensor.data_ptr(),
                0 if tensor.is_inference() else tensor._version,
                _sample(tensor),
            )
            for name, tensor in tensors
        )
    )


def _sample(tensor: torch.Tensor) -> bytes:
    """The bytes of values from all over a tensor, of 16 at most."""
    values = tensor.detach().reshape(-1)
    sample = values[:: max(1, -(-len(values) // 16))].cpu().contiguous()
    taken: bytes = sample.view(torch.uint8).numpy().tobytes()
    return taken
