"""Sharper or flatter."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState

# Below this, ordinary float32 logits would overflow when divided.
_LEAST = 1e-20


class Temperature(LogitsProcessor):
    """Divides the logits: below 1 the distribution sharpens, above 1 it flattens.

    ``l' = l / T``. 1 changes nothing. The limit T = 0 is greedy decoding, a sampler of its own:
    ``sampler: {type: greedy}``. Arithmetic is that of transformers, llama.cpp and vLLM in float32:
    a division by T, not a multiplication by 1/T.
    """

    type: Literal["temperature"] = "temperature"
    keeps_argmax: ClassVar[bool] = True

    temperature: float = Field(description="T, above 0")

    @field_validator("temperature")
    @classmethod
    def _above_zero(cls, value: float) -> float:
        if value < _LEAST:
            raise ValueError(
                "temperature must be above 0 (1e-20 at least); "
                "for greedy decoding leave it out and say `sampler: {type: greedy}`"
            )
        return value

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """``logits / temperature``, `[batch, vocab]`."""
        return logits / self.temperature
