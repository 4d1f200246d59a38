"""A plugin with the exporter `table`, which takes no time: its graph looks logits up by token.

That is what a model computes that sees no other token, such as the one that `table_model` makes. Of
any other model its graphs are wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

import zoo
from genkit.errors import UnsupportedError
from genkit.exporters import Exporter
from genkit.exporters.program import run_python
from genkit.plugins import hookimpl


class Table(Exporter):
    """Writes a table of logits."""

    type: Literal["table"] = "table"
    spoil: Literal["nothing", "numbers", "refuse", "interrupt", "environment", "wait"] = "nothing"

    def check_ready(self) -> None:
        if self.spoil == "environment":
            raise UnsupportedError("the exporter 'table' needs a table")

    def write(self, source: Path, out: Path, progress: Any) -> None:
        from genkit.exporters.source import load_module

        progress("writing the table")
        (out / "tokenizer_config.json").write_text("{}")
        (out / "own_config.json").write_text("{}")
        if self.spoil == "refuse":
            raise UnsupportedError("the exporter 'table' has no table for this")
        if self.spoil == "interrupt":
            raise KeyboardInterrupt
        if self.spoil == "wait":
            run_python(
                ["-c", f"import time; open({str(out / 'begun')!r}, 'w'); time.sleep(60)"], ""
            )
        module = load_module(source)
        with torch.no_grad():
            table = module(torch.arange(zoo.VOCAB_SIZE)[:, None]).logits[:, 0]
        if self.spoil == "numbers":
            table = -table
        write_table(table, out / "model.onnx")


def write_table(table: torch.Tensor, path: Path) -> None:
    """A graph that looks logits up."""
    from onnx import TensorProto, helper, numpy_helper, save

    width = table.shape[1]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "n"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "n", width])
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    weights = numpy_helper.from_array(table.numpy(), "table")
    graph = helper.make_graph([node], "table", [ids], [logits], [weights])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))


def table_model() -> Any:
    """A llama whose layers add nothing to the embedding."""
    module = zoo.build("llama")
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return module


@hookimpl
def genkit_register_exporters() -> list[type[Exporter]]:
    return [Table]
