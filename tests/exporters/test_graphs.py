"""What is changed in a graph after it has been written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genkit.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx_ir")  # which the runtime's quantizer needs

from genkit.exporters.graph_edits import count_kept_positions  # noqa: E402
from genkit.exporters.quantization import code_weights  # noqa: E402


def write(path: Path, nodes: list[Any], inputs: list[Any], weights: dict[str, Any]) -> None:
    helper = onnx.helper
    output = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["a", "b"])
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [output], constants)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))


def run(path: Path, **inputs: Any) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], inputs)[0]


def ids(name: str, *sizes: str) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, sizes)


@pytest.mark.parametrize(("width", "count"), [(5, 1), (5, 3), (5, 5), (1, 1)])
def test_a_list_of_positions_becomes_a_count_of_the_last_ones(
    tmp_path: Path, width: int, count: int
) -> None:
    path = tmp_path / "model.onnx"
    node = onnx.helper.make_node
    nodes = [
        node("Gather", ["input_ids", "logits_to_keep"], ["kept"], axis=1),
        node("Cast", ["kept"], ["logits"], to=onnx.TensorProto.FLOAT),
    ]
    write(path, nodes, [ids("input_ids", "batch", "n"), ids("logits_to_keep", "kept")], {})
    count_kept_positions(path)
    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    described = {port.name: port.shape for port in session.get_inputs()}
    assert described == {"input_ids": ["batch", "n"], "num_logits_to_keep": []}
    rows = np.arange(2 * width).reshape(2, width)
    found = run(path, input_ids=rows, num_logits_to_keep=np.array(count))
    assert found.tolist() == rows[:, width - count :].tolist()


def product(path: Path, *, external: bool = False) -> tuple[Any, Any]:
    """A graph that multiplies by weights; these, and an input."""
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(64, 32)).astype(np.float32)
    given = generator.normal(size=(3, 64)).astype(np.float32)
    taken = onnx.helper.make_tensor_value_info("hidden", onnx.TensorProto.FLOAT, ["n", 64])
    node = onnx.helper.make_node("MatMul", ["hidden", "weights"], ["logits"])
    write(path, [node], [taken], {"weights": weights})
    if external:
        onnx.save(
            onnx.load(str(path)), str(path), save_as_external_data=True, location="model.onnx_data"
        )
    return weights, given


@pytest.mark.parametrize(("precision", "bits"), [("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("external", [False, True])
def test_weights_are_coded_within_half_a_step(
    tmp_path: Path, precision: Any, bits: int, external: bool
) -> None:
    path = tmp_path / "model.onnx"
    weights, given = product(path, external=external)
    lines: list[str] = []
    code_weights(path, precision, lines.append)
    assert lines == [f"coding the weights as {precision}"]
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data"}
    # The scale of a block maps its largest weight to the end of the range.
    steps = np.abs(weights.reshape(2, 32, 32)).max(axis=1, keepdims=True) / 2 ** (bits - 1)
    bound = np.abs(given) @ np.broadcast_to(steps, (2, 32, 32)).reshape(64, 32)
    error = np.abs(run(path, hidden=given) - given @ weights)
    assert error.max() > 0
    assert (error <= bound + 1e-4).all()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_floats_are_left_alone(tmp_path: Path, precision: Any) -> None:
    path = tmp_path / "model.onnx"
    product(path)
    before = path.read_bytes()
    code_weights(path, precision, pytest.fail)
    assert path.read_bytes() == before


def test_a_graph_without_weights_to_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    node = onnx.helper.make_node("Cast", ["input_ids"], ["logits"], to=onnx.TensorProto.FLOAT)
    write(path, [node], [ids("input_ids", "batch", "n")], {})
    with pytest.raises(UnsupportedError, match="no weights that can be coded as int4"):
        code_weights(path, "int4", lambda line: None)
