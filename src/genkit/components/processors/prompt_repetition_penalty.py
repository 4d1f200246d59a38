"""Tokens of the prompt become more likely."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.repetition_penalty import repetition
from genkit.components.token_counts import CountPenalty
from genkit.core.run import Run


class PromptRepetitionPenalty(LogitsProcessor):
    """Makes every token of the prompt more likely, so that the answer keeps to it.

    ``l' = l / penalty`` where l is negative, ``l * penalty`` elsewhere: `repetition_penalty` with
    ``1 / penalty`` and `scope: prompt`. 1 changes nothing, below 1 the answer is led away from the
    prompt. It is `encoder_repetition_penalty` of transformers.

    >>> from genkit.testing import process
    >>> process(PromptRepetitionPenalty(penalty=2.0), [4.0, -4.0, 3.0, 0.0], prompt=[0, 1])
    [8.0, -2.0, 3.0, 0.0]
    """

    type: Literal["prompt_repetition_penalty"] = "prompt_repetition_penalty"

    penalty: float = Field(
        ge=1e-20, le=1e20, description="above 1 favours tokens of the prompt, 1 is neutral; above 0"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.penalty == 1

    def bind(self, run: Run) -> CountPenalty | None:
        """The tokens of the prompts."""
        if self.is_neutral:
            return None
        return CountPenalty(self.type, repetition(1 / self.penalty), run, "prompt")
