"""What writes a model as an ONNX graph: `genkit export`, and `export` in Python.

Names are imported when they are first asked for, so that `import genkit.exporters` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genkit.exporters.base import Exporter as Exporter
    from genkit.exporters.exporting import Export as Export
    from genkit.exporters.exporting import export as export
    from genkit.exporters.genai import GenAI as GenAI
    from genkit.exporters.optimum_ import Optimum as Optimum
    from genkit.exporters.transformers_ import Transformers as Transformers

__all__ = ["Export", "Exporter", "GenAI", "Optimum", "Transformers", "export"]

_MODULES = {
    "Export": "genkit.exporters.exporting",
    "Exporter": "genkit.exporters.base",
    "GenAI": "genkit.exporters.genai",
    "Optimum": "genkit.exporters.optimum_",
    "Transformers": "genkit.exporters.transformers_",
    "export": "genkit.exporters.exporting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
