"""Finds the graph of a model folder, and looks into it without running it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from genkit.backends.json_files import json_if_there
from genkit.backends.onnx_stamp import Stamp
from genkit.errors import ModelLoadError

_PREFERRED = ("model.onnx", "decoder_model_merged.onnx")
"""What exporters call the one graph that serves prefill and decoding."""

_WHOLE = {onnx.TensorProto.INT32, onnx.TensorProto.INT64}

_ROUNDING = {
    "DynamicQuantizeLinear",
    "QuantizeLinear",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
}
"""Operators that round what flows through the graph, and not its weights alone."""


@dataclass(frozen=True)
class GraphFile:
    """What is known of a graph before it is run.

    Attributes:
        path: the file.
        files: it and those with its weights, as they were when it was looked into.
        shares_memory: whether every attention is one that writes new keys into the memory where it
            finds the old ones, and takes lengths and positions from the sum of the mask.
        windows: how far each attention sees that writes into the memory, the token itself included,
            in the order of layers; None: to the beginning.
        numbers: whole numbers that stand alone in it, such as those that distances are
            compared with.
        forgets: whether a layer with a window may overwrite in it what no window holds any more.
        rotary_length: how many positions its table of rotations has; None if it has none.
        rounds_activations: whether it rounds numbers to integers while it computes, so that how
            tokens are fed together changes results a little.
    """

    path: Path
    files: tuple[Stamp, ...]
    shares_memory: bool
    windows: tuple[int | None, ...]
    numbers: frozenset[int]
    forgets: bool
    rotary_length: int | None
    rounds_activations: bool


def find_graph(folder: Path, file: str | None) -> Path:
    """The graph of a model folder.

    Args:
        folder: has graphs in it, or in its subfolder `onnx`; or is itself a file.
        file: which one, relative to the folder; None: the one there is, or the usual one.

    Raises:
        ModelLoadError: there is none, or several and no telling which.
    """
    if folder.is_file():
        return folder
    found = [path for inner in (folder, folder / "onnx") for path in sorted(inner.glob("*.onnx"))]
    names = [str(path.relative_to(folder)) for path in found]
    if file is not None:
        if (folder / file).is_file():
            return folder / file
        raise ModelLoadError(f"{folder} has no file {file!r}; graphs there: {_listed(names)}")
    if not found:
        raise ModelLoadError(
            f"{folder} has no ONNX graph (a file *.onnx, here or in its subfolder onnx); "
            "`genkit export MODEL OUT` makes one"
        )
    named = _named_by_genai(folder)
    chosen = [path for path in found if path.name in ({named} if named else _PREFERRED)]
    if len(found) == 1 or len(chosen) == 1:
        return chosen[0] if chosen else found[0]
    raise ModelLoadError(
        f"{folder} has several graphs ({_listed(names)}); say which one with `file: NAME`"
    )


def look_into(path: Path) -> GraphFile:
    """What a graph is made of.

    Raises:
        ModelLoadError: it is no graph, or the files with its weights are missing or cut short.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read as an ONNX graph: {error}") from error
    if not model.graph.node:
        raise ModelLoadError(f"{path} is no ONNX graph, or an empty one")
    graphs = list(_with_branches(model.graph))
    initializers = {each.name: each for graph in graphs for each in graph.initializer}
    kept_outside = [
        tensor
        for tensor in initializers.values()
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    external = {_external(path, tensor) for tensor in kept_outside}
    nodes = [node for graph in graphs for node in graph.node]
    grouped = [node for node in nodes if node.op_type == "GroupQueryAttention"]
    attended = {node.input[3] for node in grouped if len(node.input) > 3}
    pasts = {each.name for each in model.graph.input if each.name.endswith((".key", ".keys"))}
    tables = [initializers.get(name) for node in grouped for name in node.input[7:8]]
    lengths = [table.dims[0] for table in tables if table is not None]
    return GraphFile(
        path=path,
        files=tuple(Stamp.of(file) for file in (path, *sorted(external))),
        shares_memory=bool(pasts) and attended == pasts,
        windows=tuple(map(_window, grouped)),
        numbers=frozenset(_numbers(initializers.values(), nodes)),
        forgets=any(_whole(node, "sliding_window_cache") for node in grouped),
        rotary_length=min(lengths, default=None),
        rounds_activations=any(map(_rounds, nodes)),
    )


def _with_branches(graph: Any) -> Iterator[Any]:
    """A graph and those inside its nodes: a merged export is one node with two branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _with_branches(attribute.g)


def _named_by_genai(folder: Path) -> str | None:
    found: Any = json_if_there(folder / "genai_config.json")
    for key in ("model", "decoder", "filename"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _external(path: Path, tensor: Any) -> Path:
    """The file that a tensor is kept in, checked: a short one is no error of ONNX Runtime's."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    file: Path = path.parent / where.get("location", "")
    if not file.is_file():
        raise ModelLoadError(
            f"{path} keeps its weights in {where.get('location')!r}, and {file} is missing; the "
            "two belong into one folder"
        )
    end = int(where.get("offset", 0)) + int(where.get("length", 0))
    if (size := file.stat().st_size) < end:
        raise ModelLoadError(
            f"{file} is cut short: it has {size:,} bytes, and {tensor.name!r} ends at {end:,}; "
            "copy or export it again"
        )
    return file


def _numbers(initializers: Iterable[Any], nodes: Iterable[Any]) -> Iterator[int]:
    attributes = [each for node in nodes for each in node.attribute]
    yield from (each.i for each in attributes if each.name == "value_int")
    for tensor in (*initializers, *(each.t for each in attributes if each.HasField("t"))):
        alone = math.prod(tensor.dims) == 1 and tensor.data_location != onnx.TensorProto.EXTERNAL
        if alone and tensor.data_type in _WHOLE:
            yield int(onnx.numpy_helper.to_array(tensor).item())


def _window(node: Any) -> int | None:
    size = _whole(node, "local_window_size")
    return size if size > 0 else None


def _whole(node: Any, name: str) -> int:
    """An attribute that is a whole number, 0 if it is not there."""
    return next((int(each.i) for each in node.attribute if each.name == name), 0)


def _rounds(node: Any) -> bool:
    if node.op_type == "MatMulNBits":
        return _whole(node, "accuracy_level") == 4
    return node.op_type in _ROUNDING


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
