"""What yields a model: a runtime, or a combinator of models.

Names are imported when they are first asked for, so that `import genkit.backends` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genkit.backends.base import Backend as Backend
    from genkit.backends.base import ModelSource as ModelSource
    from genkit.backends.onnxruntime_ import OnnxRuntime as OnnxRuntime
    from genkit.backends.pytorch import PyTorch as PyTorch

__all__ = ["Backend", "ModelSource", "OnnxRuntime", "PyTorch"]

_MODULES = {
    "Backend": "genkit.backends.base",
    "ModelSource": "genkit.backends.base",
    "OnnxRuntime": "genkit.backends.onnxruntime_",
    "PyTorch": "genkit.backends.pytorch",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
