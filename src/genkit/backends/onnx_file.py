"""Finds the graph of a model folder, and looks into it without running it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_REAL = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}

_OF_DISTANCES = {"Add", "Sub", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
"""Operators between which positions become a mask."""

_TABLE_INPUT = {"GroupQueryAttention": slice(7, 8), "RotaryEmbedding": slice(2, 3)}
"""Where the operators that know of positions take their table of rotations."""

_SAME_VALUES = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}

_KINDS = 4
"""A table of no more rows is one of kinds of tokens, and not of positions."""

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
        numbers: whole numbers that it adds, subtracts or compares with, as distances are.
        forgets: whether a layer with a window may overwrite in it what no window holds any more.
        table_length: for how many positions it has rotations or embeddings; None if it computes
            them, or keeps them where nobody can tell.
        rounds_activations: whether it rounds numbers to integers while it computes, so that how
            tokens are fed together changes results a little.
    """

    path: Path
    files: tuple[Stamp, ...]
    shares_memory: bool
    windows: tuple[int | None, ...]
    numbers: frozenset[int]
    forgets: bool
    table_length: int | None
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
        if file is not None:
            raise ModelLoadError(f"{folder} is a graph itself; leave `file: {file}` out")
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
        return _looked_into(path, model)
    except (DecodeError, OSError, ValueError, TypeError, IndexError) as error:
        raise ModelLoadError(f"{path} cannot be read as an ONNX graph: {error}") from error


def _looked_into(path: Path, model: Any) -> GraphFile:
    if not model.graph.node:
        raise ModelLoadError(f"{path} is no ONNX graph, or an empty one")
    graphs = list(_with_branches(model.graph))
    initializers = {each.name: each for graph in graphs for each in graph.initializer}
    kept_outside = [tensor for tensor in initializers.values() if _lies_outside(tensor)]
    external = {_external(path, tensor) for tensor in kept_outside}
    nodes = [node for graph in graphs for node in graph.node]
    grouped = [node for node in nodes if node.op_type == "GroupQueryAttention"]
    attended = {node.input[3] for node in grouped if len(node.input) > 3}
    pasts = {each.name for each in model.graph.input if each.name.endswith((".key", ".keys"))}
    return GraphFile(
        path=path,
        files=tuple(Stamp.of(file) for file in (path, *sorted(external))),
        shares_memory=bool(pasts) and attended == pasts,
        windows=tuple(map(_window, grouped)),
        numbers=frozenset(_numbers(initializers, nodes)),
        forgets=any(_whole(node, "sliding_window_cache") for node in grouped),
        table_length=min(_lengths_of_tables(initializers, nodes), default=None),
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


def _lies_outside(tensor: Any) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


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


def _numbers(initializers: Mapping[str, Any], nodes: Iterable[Any]) -> Iterator[int]:
    constants = {
        node.output[0]: each
        for node in nodes
        if node.op_type == "Constant"
        for each in node.attribute
    }
    names = {name for node in nodes if node.op_type in _OF_DISTANCES for name in node.input}
    for name in names:
        constant = constants.get(name)
        if constant is not None and constant.name == "value_int":
            yield constant.i
            continue
        tensor = initializers.get(name) if constant is None else constant.t
        if tensor is None or tensor.data_type not in _WHOLE or _lies_outside(tensor):
            continue
        if math.prod(tensor.dims) == 1:
            yield int(onnx.numpy_helper.to_array(tensor).item())


def _lengths_of_tables(initializers: Mapping[str, Any], nodes: Iterable[Any]) -> Iterator[int]:
    """How long the tables are that are read by position."""
    made_by = {name: node for node in nodes for name in node.output}
    for node in nodes:
        names: Sequence[str] = node.input[_TABLE_INPUT.get(node.op_type, slice(0))]
        if node.op_type == "Gather" and not _is_ids(node.input[1], made_by):
            names = node.input[:1]
        for table in (initializers[name] for name in names if name in initializers):
            is_table = len(table.dims) == 2 and table.data_type in _REAL
            if is_table and table.dims[0] > _KINDS:
                yield table.dims[0]


def _is_ids(name: str, made_by: Mapping[str, Any]) -> bool:
    """Whether a value is the ids that are fed, in whatever type and form."""
    while (node := made_by.get(name)) is not None and node.op_type in _SAME_VALUES:
        name = node.input[0]
    return name == "input_ids"


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
