"""What can be tried in this environment, and a tokenizer for the ids of the zoo."""

from __future__ import annotations

from typing import Any

import pytest

import zoo
from genkit.exporters import packages


def installed(name: str) -> bool:
    return packages.version(name) is not None


transformers_5 = not str(packages.version("transformers")).startswith("4.")
needs_genai = pytest.mark.skipif(
    not (installed("onnxruntime-genai") and transformers_5), reason="no onnxruntime-genai"
)
needs_tracer = pytest.mark.skipif(
    not (installed("onnxscript") and transformers_5), reason="no onnxscript, or transformers 4.x"
)
needs_optimum = pytest.mark.skipif(not installed("optimum-onnx"), reason="no optimum-onnx")


def tokenizer() -> Any:
    """One for the ids of the zoo; what it makes of a text does not matter here."""
    import transformers
    from tokenizers import Tokenizer, models

    words = {f"w{i}": i for i in range(zoo.VOCAB_SIZE)}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    ids = {"unk_token": "w0", "eos_token": "w1"}  # the model builder asks for an end token
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **ids)
