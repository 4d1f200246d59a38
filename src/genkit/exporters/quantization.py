"""Codes the weights of a graph as small integers. What flows through the graph stays float."""

from __future__ import annotations

import logging
from pathlib import Path

from genkit.backends.base import Progress
from genkit.errors import UnsupportedError
from genkit.exporters.base import Precision

_BITS: dict[Precision, int] = {"int8": 8, "int4": 4}

BLOCK = 32
"""How many weights share a scale."""


def packages_for(precision: Precision) -> tuple[str, ...]:
    """What must be installed to code weights, by import names."""
    return ("onnx_ir",) if precision in _BITS else ()


def code_weights(path: Path, precision: Precision, progress: Progress) -> None:
    """Replace the weights of a graph's matrix products, in place, if `precision` is an integer.

    Args:
        path: the graph. Its weights lie in files beside it or inside.
        precision: what is wanted.
        progress: told that it begins.

    Raises:
        UnsupportedError: there is no graph, or none of its products has constant weights.
    """
    if precision not in _BITS:
        return
    if not path.is_file():
        raise UnsupportedError(f"there is no graph whose weights could be coded as {precision}")
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    progress(f"coding the weights as {precision}")
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.ERROR)
    model = onnx.load(str(path))  # weights included
    for stale in (path, *path.parent.glob(f"{path.name}[._]*")):
        stale.unlink()
    quantizer = MatMulNBitsQuantizer(
        model, bits=_BITS[precision], block_size=BLOCK, is_symmetric=True
    )
    quantizer.process()
    coded = quantizer.model.model
    if not any(node.op_type == "MatMulNBits" for node in coded.graph.node):
        raise UnsupportedError(f"the graph has no weights that can be coded as {precision}")
    onnx.save(coded, str(path), save_as_external_data=True, location=f"{path.name}.data")
