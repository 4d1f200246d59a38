"""The exporter `genai`: the model builder of onnxruntime-genai."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from genkit.backends.base import Progress
from genkit.backends.json_files import read_json
from genkit.errors import UnsupportedError
from genkit.exporters.base import Exporter
from genkit.exporters.packages import require
from genkit.exporters.program import run_python

_PURPOSE = "the exporter 'genai'"
_WIDTH = 16


class GenAI(Exporter):
    """The model builder of onnxruntime-genai: quick, fast graphs; common architectures."""

    type: Literal["genai"] = "genai"
    provider: Literal["cpu", "cuda"] = Field(
        "cpu", description="what the graph is made for; fp16 is for cuda only"
    )

    @property
    def graph_provider(self) -> str:
        """What the graph is made for."""
        return self.provider

    def check_ready(self) -> None:
        require(_PURPOSE, "onnxruntime_genai", "onnx", "onnxruntime")
        if self.precision == "fp16" and self.provider == "cpu":
            raise UnsupportedError(
                f"{_PURPOSE} makes fp16 graphs for CUDA only (provider: cuda); for the CPU use the "
                "exporter 'transformers', or fp32, int8 or int4"
            )

    def write(self, source: Path, out: Path, progress: Progress) -> None:
        """Run the builder; see `Exporter.write`."""
        if not any(source.glob("tokenizer*")):
            raise UnsupportedError(
                f"{_PURPOSE} needs the model's tokenizer, and {source} has none; the exporter "
                "'transformers' does without"
            )
        _refuse_odd_heads(source)
        progress("building the graph (about a minute for 100 million parameters)")
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}-") as scratch:
            options = ["-i", source.resolve(), "-o", out.resolve(), "-c", Path(scratch).resolve()]
            options += ["-p", self.precision, "-e", self.provider]
            program = ["-m", "onnxruntime_genai.models.builder", *map(str, options)]
            run_python(program, f"{_PURPOSE} cannot export {source}")


def _refuse_odd_heads(source: Path) -> None:
    """Refuse what would be built for minutes into a graph that does not run."""
    config = read_json(source / "config.json")
    width, heads = config.get("head_dim"), config.get("num_attention_heads")
    if width is None and isinstance(heads, int) and heads > 0:
        width = config.get("hidden_size", 0) // heads
    if isinstance(width, int) and width % _WIDTH:
        raise UnsupportedError(
            f"{_PURPOSE} cannot export {source}: its operator GroupQueryAttention takes heads "
            f"whose width is a multiple of {_WIDTH}, and here it is {width}; use the exporter "
            "'transformers'"
        )
