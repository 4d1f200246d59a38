"""A number of tokens, the prompt included."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.core.state import GenerationState


class MaxLength(StopCriterion):
    """Ends a row when prompt and answer together have that many tokens.

    Padding never counts. The finish reason is `length`. (`max_length` in transformers and
    onnxruntime-genai.)

    Errors: a prompt that leaves no room for an answer, and a second, different limit.

    >>> from genkit.testing import ending
    >>> ending(MaxLength(limit=4), [5, 6, 7, 8], prompt=[1, 2])
    2
    """

    type: Literal["max_length"] = "max_length"
    finish_reason: ClassVar[str] = "length"

    limit: int = Field(
        ge=2, lt=2**31, description="the most tokens, prompt included; padding never counts"
    )

    def bound(self, num_prompt_tokens: int) -> int:
        """The limit itself."""
        return self.limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True where the limit is reached, bool `[batch]`."""
        return state.num_tokens >= self.limit
