"""Opens a graph in ONNX Runtime, on the provider that was asked for and on no other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch

from genkit.errors import ModelLoadError

logger = logging.getLogger(__name__)

_SHORT = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def open_session(
    path: Path,
    *,
    provider: str = "auto",
    provider_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    optimization: str = "all",
) -> Any:
    """A session whose first provider is the one asked for.

    Args:
        path: the graph.
        provider: `cpu`, `cuda`, ONNX Runtime's own name of a provider, or `auto`: CUDA where it
            works, otherwise the CPU.
        provider_options: of that provider, by ONNX Runtime's names; of CUDA, if it is `auto`.
        threads: of one operator on the CPU; None: as many as there are cores.
        optimization: how far the graph is rewritten; one of `LEVELS`.

    Raises:
        ModelLoadError: the provider is not there or cannot start, or the graph cannot be opened.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what fails is raised
    options.graph_optimization_level = LEVELS[optimization]
    if threads is not None:
        options.intra_op_num_threads = threads
    settings = {name: _as_text(value) for name, value in (provider_options or {}).items()}
    if provider != "auto":
        return _open(path, options, _provider_named(provider), settings)
    cuda = _SHORT["cuda"]
    if cuda in ort.get_available_providers():
        try:
            return _open(path, options, cuda, settings)
        except ModelLoadError as error:
            logger.warning("running on the CPU: %s", error)
    return _open(path, options, _SHORT["cpu"], {})


def device_of(session: Any) -> torch.device:
    """Where a session's tensors are expected."""
    provider = session.get_providers()[0]
    if provider != _SHORT["cuda"]:
        return torch.device("cpu")
    index = session.get_provider_options()[provider].get("device_id", "0")
    return torch.device("cuda", int(index))


def _provider_named(name: str) -> str:
    provider = _SHORT.get(name, name)
    available = ort.get_available_providers()
    if provider in available:
        return provider
    advice = ""
    if provider == _SHORT["cuda"]:
        advice = "; install the package onnxruntime-gpu in the place of onnxruntime"
    raise ModelLoadError(
        f"provider {name!r}: the installed ONNX Runtime ({ort.__version__}) is built without "
        f"{provider}; it has {', '.join(available)}{advice}"
    )


def _open(path: Path, options: Any, provider: str, settings: Mapping[str, str]) -> Any:
    if settings and provider == _SHORT["cpu"]:  # ONNX Runtime would pass over them
        raise ModelLoadError(
            f"provider_options: {provider} has none, found {', '.join(map(repr, settings))}"
        )
    try:
        session = ort.InferenceSession(str(path), options, providers=[(provider, dict(settings))])
    except Exception as error:  # its classes have no common base but this one
        raise ModelLoadError(f"{path}: {_reason(error)}") from error
    # A provider that cannot start is passed over without an error.
    active = session.get_providers()
    if active[0] != provider:
        raise ModelLoadError(
            f"ONNX Runtime could not start {provider} for {path} and would run on {active[0]}; the "
            "libraries that it needs, such as CUDA and cuDNN, are missing or of another version"
        )
    return session


def _reason(error: Exception) -> str:
    """What ONNX Runtime says, without codes and source places."""
    words = " ".join(str(error).split())
    words = words.removeprefix("[ONNXRuntimeError] : ")
    if "NOT_IMPLEMENTED" in words:
        words += " (this provider cannot run the graph; try another precision or provider)"
    return words if len(words) < 500 else words[:500] + " ..."


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
