"""What is installed, asked without importing it."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from genkit.errors import MissingPackageError

_NOTED = (
    "lm-genkit",
    "torch",
    "transformers",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-genai",
    "optimum-onnx",
)
"""What a graph may depend on, by the names of distributions."""


def require(purpose: str, *packages: str) -> None:
    """Refuse to go on without these packages, by their import names.

    Raises:
        MissingPackageError: one is not installed.
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError(package, "pip install 'lm-genkit[export]'", purpose)


def usual_exporter(precision: str) -> str:
    """The name of the exporter for somebody who has not chosen one."""
    if precision != "fp16" and find_spec("onnxruntime_genai") is not None:
        return "genai"
    return "optimum" if str(version("transformers")).startswith("4.") else "transformers"


def version(distribution: str) -> str | None:
    """The installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Those that are installed of what a graph may depend on."""
    found = {name: version(name) for name in _NOTED}
    return {name: number for name, number in found.items() if number is not None}
