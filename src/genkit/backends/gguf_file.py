"""Reads a GGUF file: what it says about itself, and its tensors without quantisation.

The layout is that of the GGUF specification (ggml, docs/gguf.md), versions 2 and 3, little-endian.
The header is read here, since the reader of the package `gguf` makes an array object of every token
and takes seconds for it; blocks are dequantised by that package.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from genkit.errors import ModelLoadError

_FLOATS = {
    gguf.GGMLQuantizationType.F32: torch.float32,
    gguf.GGMLQuantizationType.F16: torch.float16,
    gguf.GGMLQuantizationType.BF16: torch.bfloat16,
}
# Value types by their number in the file; 8 is a string and 9 an array.
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]  # rows first
    kind: gguf.GGMLQuantizationType
    start: int
    num_bytes: int


class GgufFile:
    """An open GGUF file.

    Attributes:
        metadata: every key and value.
        shapes: shape of each tensor, rows first.

    Raises:
        ModelLoadError: it is no GGUF file, is cut short, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_magic(path)
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self.metadata, self._tensors = _read_header(_Cursor(self._bytes))
        except Exception as error:  # whatever bytes there are, this is what they mean
            raise self._damaged(f"its header cannot be read: {error}") from error
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self._check_places()

    @property
    def architecture(self) -> str:
        """What the file calls its kind of model."""
        return str(self.get("general.architecture", ""))

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        return self.metadata.get(key, default)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor: as stored if it is a float, otherwise dequantised to float32."""
        tensor = self._tensors[name]
        raw = np.frombuffer(self._bytes, np.uint8, tensor.num_bytes, tensor.start)
        if tensor.kind in _FLOATS:
            dtype = _FLOATS[tensor.kind]
            return torch.from_numpy(raw.copy()).view(dtype).reshape(tensor.shape)
        try:
            values = gguf.dequantize(raw, tensor.kind)
        except NotImplementedError as error:
            raise ModelLoadError(
                f"{self.path}: the quantisation {tensor.kind.name} of {name} is not known"
            ) from error
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).reshape(tensor.shape)

    def _check_places(self) -> None:
        end = 0
        for name, tensor in sorted(self._tensors.items(), key=lambda item: item[1].start):
            if tensor.start < end:
                raise self._damaged(f"the tensor {name} begins before the one in front of it ends")
            end = tensor.start + tensor.num_bytes
        if len(self._bytes) < end:
            raise self._damaged(f"it has {len(self._bytes)} bytes and should have {end}")

    def _damaged(self, why: str) -> ModelLoadError:
        return ModelLoadError(f"{self.path} is damaged or cut short ({why}); fetch the file again")


def check_magic(path: Path) -> None:
    """Refuse what does not begin like a GGUF file.

    Raises:
        ModelLoadError: it does not, or cannot be opened.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be opened: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is no GGUF file (it begins with {magic!r}); a model that is one file must be "
            "GGUF, for other weights give the folder they lie in"
        )


class _Cursor:
    """A place in the file that moves on as values are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.place = 4  # after the magic

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """`count` numbers of one type."""
        size = struct.calcsize(f"<{code}") * count
        if size > len(self.data) - self.place:
            raise ValueError(f"{count} values at byte {self.place} go beyond its end")
        values = struct.unpack_from(f"<{count}{code}", self.data, self.place)
        self.place += size
        return values

    def number(self, code: str) -> Any:
        """One number."""
        return self.numbers(code, 1)[0]

    def string(self) -> str:
        """A text, after its length."""
        size = self.number("Q")
        if size > len(self.data) - self.place:
            raise ValueError(f"a text at byte {self.place} goes beyond its end")
        raw = self.data[self.place : self.place + size]
        self.place += size
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """A value of the type with this number."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        return self.number(_NUMBERS[kind])

    def array(self) -> list[Any]:
        """Values of one type, after the number of the type and their count."""
        kind, count = self.number("I"), self.number("Q")
        if kind in _NUMBERS:
            return list(self.numbers(_NUMBERS[kind], count))
        read: Callable[[], Any] = self.string if kind == _STRING else self.array
        return [read() for _ in range(count)]


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    version, num_tensors, num_keys = (cursor.number(code) for code in "IQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version} is not known, or the file is big-endian")
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string()
        if key in metadata:
            raise ValueError(f"the key {key:.60} is there twice")
        metadata[key] = cursor.value(cursor.number("I"))
    listed = [_read_tensor(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
        raise ValueError(f"general.alignment is {alignment!r:.60}, no multiple of 8")
    begin = -(-cursor.place // alignment) * alignment
    tensors: dict[str, _Tensor] = {}
    for name, shape, kind, offset in listed:
        if offset % alignment or name in tensors:
            raise ValueError(f"the tensor {name} is there twice, or at a place that is not aligned")
        tensors[name] = _Tensor(shape, kind, begin + offset, _num_bytes(shape, kind))
    return metadata, tensors


def _read_tensor(
    cursor: _Cursor,
) -> tuple[str, tuple[int, ...], gguf.GGMLQuantizationType, int]:
    name = cursor.string()
    columns_first = cursor.numbers("Q", cursor.number("I"))
    kind = gguf.GGMLQuantizationType(cursor.number("I"))
    return name, tuple(reversed(columns_first)), kind, cursor.number("Q")


def _num_bytes(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> int:
    values_a_block, bytes_a_block = gguf.GGML_QUANT_SIZES[kind]
    if not all(shape) or shape[-1] % values_a_block:
        raise ValueError(f"a tensor of the shape {list(shape)} is empty or no whole blocks")
    return math.prod(shape) // values_a_block * bytes_a_block
