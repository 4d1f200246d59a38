"""The base of all exporters."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from genkit.backends.base import Progress
from genkit.components.base import Component

Precision = Literal["fp32", "fp16", "int8", "int4"]


class Exporter(Component):
    """Base of the parts that write a model as an ONNX graph.

    A subclass that offers fewer precisions declares `precision` anew, with those it has.
    """

    kind: ClassVar[str] = "exporter"

    precision: Precision = Field(
        "fp32", description="of the weights; int8 and int4 are weights in blocks with a scale each"
    )

    @property
    def graph_provider(self) -> str:
        """What the graph is made for: `cpu` (and whatever runs any graph) or `cuda`."""
        return "cpu"

    def check_ready(self) -> None:
        """Refuse, before anything is read or written, what cannot be done in this environment.

        Raises:
            MissingPackageError: a package is not installed.
            UnsupportedError: it is, but cannot do what the options ask for.
        """

    def write(self, source: Path, out: Path, progress: Progress) -> None:
        """Write the graph. Settings and tokenizer are copied afterwards, and the graph is checked.

        Args:
            source: a model folder of transformers: config.json and weights, a tokenizer if the
                model has one.
            out: an empty folder.
            progress: told what takes long.

        Raises:
            UnsupportedError: the model cannot be exported; the message says why, in one line.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define write")
