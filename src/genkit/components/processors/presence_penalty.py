"""Tokens that were there already lose a fixed amount."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.history import Scope
from genkit.components.token_counts import CountPenalty, number
from genkit.core.run import Run


class PresencePenalty(LogitsProcessor):
    """Takes a fixed amount from every token that was there already, however often it came.

    ``l' = l - penalty``, in logits. 0 changes nothing, above 0 discourages, below 0 encourages;
    services allow -2 to 2. By default the tokens of the answer count, as in the OpenAI interface,
    vLLM and SGLang; in llama.cpp it is the last 64 of prompt and answer (`scope: all, window: 64`),
    in mlx-lm the last 20. Padding is never in the history.

    >>> from genkit.testing import process
    >>> process(PresencePenalty(penalty=0.5), [4.0, 3.0, 2.0, 1.0], prompt=[3], generated=[0, 1, 0])
    [3.5, 2.5, 2.0, 1.0]
    """

    type: Literal["presence_penalty"] = "presence_penalty"

    penalty: float = Field(
        ge=-1e6, le=1e6, description="what is taken from a logit; above 0 discourages, 0 is neutral"
    )
    scope: Scope = Field(
        "output",
        description="the tokens that count: `all`, those of the `output`, or those of the `prompt`",
    )
    window: int | None = Field(
        None, ge=0, description="only the last so many of these tokens; null: all of them"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.penalty == 0 or self.window == 0

    def bind(self, run: Run) -> CountPenalty | None:
        """The tokens seen so far, kept up to date in constant time a token."""
        if self.is_neutral:
            return None
        return CountPenalty(self.type, self._change, run, self.scope, self.window)

    def _change(self, logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return logits - number(self.penalty, logits)
