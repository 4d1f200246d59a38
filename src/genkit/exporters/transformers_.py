"""The exporter `transformers`: the one that comes with transformers 5.x."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from genkit.backends.base import Progress
from genkit.errors import UnsupportedError
from genkit.exporters.base import Exporter
from genkit.exporters.packages import require, version
from genkit.exporters.program import run_python
from genkit.exporters.quantization import code_weights, packages_for

_PURPOSE = "the exporter 'transformers'"


class Transformers(Exporter):
    """The exporter of transformers 5.x: one graph for all steps; most architectures."""

    type: Literal["transformers"] = "transformers"

    def check_ready(self) -> None:
        require(_PURPOSE, "onnx", "onnxscript", "onnxruntime", *packages_for(self.precision))
        found = str(version("transformers"))
        if found.startswith("4."):
            raise UnsupportedError(
                f"{_PURPOSE} comes with transformers 5.x, and {found} is installed: pip install "
                "'transformers>=5.24', or use the exporter 'optimum'"
            )

    def write(self, source: Path, out: Path, progress: Progress) -> None:
        """Trace the model, and code its weights if that is wanted; see `Exporter.write`."""
        progress("tracing the model (about a minute)")
        dtype = "float16" if self.precision == "fp16" else "float32"
        program = ["-m", "genkit.exporters.trace", str(source.resolve()), str(out.resolve()), dtype]
        run_python(program, f"{_PURPOSE} cannot export {source}")
        code_weights(out / "model.onnx", self.precision, progress)
