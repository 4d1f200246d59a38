"""A number of generated tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.core.state import GenerationState


class MaxNewTokens(StopCriterion):
    """Ends a row when it has generated that many tokens.

    The end token counts, the prompt does not. The finish reason is `length`. (`max_new_tokens` in
    transformers and SGLang, `max_tokens` in vLLM and OpenAI, `n_predict` in llama.cpp.)

    Errors: a second, different limit, and one that a `max_length` makes unreachable.

    >>> from genkit.testing import ending
    >>> ending(MaxNewTokens(limit=3), [5, 6, 7, 8], prompt=[1, 2])
    3
    """

    type: Literal["max_new_tokens"] = "max_new_tokens"
    finish_reason: ClassVar[str] = "length"

    limit: int = Field(ge=1, lt=2**31, description="the most tokens to generate, at least 1")

    def bound(self, num_prompt_tokens: int) -> int:
        """The prompt and the limit."""
        return num_prompt_tokens + self.limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True where the limit is reached, bool `[batch]`."""
        if state.most_generated < self.limit:
            return state.finished
        return state.num_generated >= self.limit
