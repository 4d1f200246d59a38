"""The exporter `optimum`: optimum-onnx, in this environment or in one of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from pydantic import Field

from genkit.backends.base import Progress
from genkit.errors import MissingPackageError
from genkit.exporters.base import Exporter
from genkit.exporters.packages import require, version
from genkit.exporters.program import run_python
from genkit.exporters.quantization import code_weights, packages_for

_PURPOSE = "the exporter 'optimum'"


class Optimum(Exporter):
    """The exporter of optimum-onnx, which needs transformers 4.57."""

    type: Literal["optimum"] = "optimum"
    # It takes fp16 for an argument, and writes fp32 all the same.
    precision: Literal["fp32", "int8", "int4"] = Field("fp32", description="of the weights")
    python: str | None = Field(
        None, description="an interpreter that has optimum-onnx; by default the running one"
    )

    def check_ready(self) -> None:
        require(_PURPOSE, "onnx", "onnxruntime", *packages_for(self.precision))
        if self.python is None and version("optimum-onnx") is None:
            raise MissingPackageError("optimum-onnx", _advice(), _PURPOSE)
        run_python(
            ["-c", "import optimum.exporters.onnx"],
            f"{_PURPOSE} cannot use {self._interpreter}",
            self._interpreter,
        )

    def write(self, source: Path, out: Path, progress: Progress) -> None:
        """Run the exporter, and code the weights if that is wanted; see `Exporter.write`."""
        progress("exporting the model (a minute or two)")
        options = ["--model", str(source.resolve()), "--task", "text-generation-with-past"]
        program = ["-m", "optimum.exporters.onnx", *options, str(out.resolve())]
        run_python(program, f"{_PURPOSE} cannot export {source}", self._interpreter)
        code_weights(out / "model.onnx", self.precision, progress)

    @property
    def _interpreter(self) -> str:
        return self.python or sys.executable


def _advice() -> str:
    found = str(version("transformers"))
    if found.startswith("4.57"):
        return "pip install 'lm-genkit[optimum]'"
    return (
        f"it works with transformers 4.57 and here is {found}, so give it an environment of its "
        "own, python -m venv optimum && optimum/bin/pip install 'lm-genkit[optimum]', and name "
        "that with --set python=optimum/bin/python"
    )
