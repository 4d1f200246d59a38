"""Loads the model that is exported, for tracing it and for comparing the graph with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from genkit.backends.loading import load_model, read_config
from genkit.backends.pytorch import PyTorch


def load_module(folder: Path, dtype: str = "float32") -> Any:
    """The model of a folder on the CPU. No tokenizer is needed.

    Raises:
        ModelLoadError: it cannot be loaded.
    """
    spec = _spec(folder, dtype)
    return load_model(folder, read_config(folder, spec), spec, torch.device("cpu"))


def check_source(folder: Path) -> None:
    """Refuse what is no causal language model, or has no weights, before work has begun.

    Raises:
        ModelLoadError: it is so.
    """
    read_config(folder, _spec(folder))


def _spec(folder: Path, dtype: Any = "float32") -> PyTorch:
    return PyTorch(model=str(folder), device="cpu", dtype=dtype)
