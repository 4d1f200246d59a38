"""What an object consists of, in a form that can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, type)


def attributes_of(value: Any) -> dict[str, str]:
    """Every attribute and item in `value`, however deep: its path, and what identifies its content.

    Tensors and arrays count by their bytes, so that no way of writing to one goes unseen. The
    attribute `tokenizer` is left out: tokenizers remember what they have met.
    """
    return dict(_walk("", value, set()))


def _walk(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(value, _PLAIN):
        yield path, repr(value)
    elif isinstance(value, torch.Tensor):
        array = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        yield path, f"{value.dtype} {list(value.shape)} {_digest(array)}"
    elif isinstance(value, np.ndarray):
        yield path, f"{value.dtype} {value.shape} {_digest(np.ascontiguousarray(value))}"
    elif id(value) not in seen:
        seen.add(id(value))
        yield path, type(value).__name__
        for name, item in _items(value):
            yield from _walk(f"{path}.{name}" if path else name, item, seen)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((repr(item), None) for item in value)
    for name, item in getattr(value, "__dict__", {}).items():
        if name != "tokenizer":
            yield name, item


def _digest(array: Any) -> str:
    return hashlib.blake2b(memoryview(array).cast("B"), digest_size=8).hexdigest()
