"""Changes to a graph that has been written; its weights are not read."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

COUNT, POSITIONS = "num_logits_to_keep", "logits_to_keep"
"""What the graphs of the community call a count, and transformers a list of positions."""


def count_kept_positions(path: Path) -> None:
    """Let a graph take the number of last positions that get logits, and not a list of positions.

    One number means the same at every length, and is what other exporters' graphs take.
    """
    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    [place] = [i for i, port in enumerate(graph.input) if port.name == POSITIONS]
    graph.input[place].CopyFrom(helper.make_tensor_value_info(COUNT, TensorProto.INT64, []))
    names = {"one": f"{COUNT}.one", "axes": f"{COUNT}.axes"}
    graph.initializer.extend(
        [
            helper.make_tensor(names["one"], TensorProto.INT64, [], [1]),
            helper.make_tensor(names["axes"], TensorProto.INT64, [1], [0]),
        ]
    )
    made = [
        helper.make_node("Shape", ["input_ids"], [f"{COUNT}.shape"], start=1, end=2),
        helper.make_node("Squeeze", [f"{COUNT}.shape", names["axes"]], [f"{COUNT}.end"]),
        helper.make_node("Sub", [f"{COUNT}.end", COUNT], [f"{COUNT}.begin"]),
        helper.make_node("Range", [f"{COUNT}.begin", f"{COUNT}.end", names["one"]], [POSITIONS]),
    ]
    nodes = [*made, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, str(path))
