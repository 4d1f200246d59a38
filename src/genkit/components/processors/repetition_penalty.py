"""Tokens that were there already become less likely."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.history import Scope
from genkit.components.token_counts import Change, CountPenalty, number
from genkit.core.run import Run
from genkit.core.state import GenerationState

Positive = Literal["divide", "reciprocal"]


class RepetitionPenalty(LogitsProcessor):
    """Makes every token that was there already less likely, once, however often it came.

    ``l' = l * penalty`` where l is negative, ``l / penalty`` elsewhere (Keskar et al. 2019). 1
    changes nothing, above 1 discourages, below 1 encourages. Padding is never in the history.

    The penalty acts on the sign of l, so that it is not the same before and after something that
    shifts the logits. `base: logprobs` first makes log-probabilities of the logits, all of which
    are negative: what transformers does in beam search and after guidance.

    Which tokens count differs between engines: prompt and answer in transformers, vLLM and
    onnxruntime-genai, the answer in SGLang (`scope: output`), the last 64 tokens of both in
    llama.cpp (`window: 64`) and the last 20 in mlx-lm. vLLM multiplies positive logits by
    1 / penalty, which may differ from the quotient in the last bit (`positive: reciprocal`).

    >>> from genkit.testing import process
    >>> process(RepetitionPenalty(penalty=2.0), [4.0, -4.0, 3.0, 0.0], prompt=[0, 1, 0])
    [2.0, -8.0, 3.0, 0.0]
    """

    type: Literal["repetition_penalty"] = "repetition_penalty"

    penalty: float = Field(
        ge=1e-20, le=1e20, description="above 1 discourages repetition, 1 is neutral; above 0"
    )
    scope: Scope = Field(
        "all",
        description="the tokens that count: `all`, those of the `output`, or those of the `prompt`",
    )
    window: int | None = Field(
        None, ge=0, description="only the last so many of these tokens; null: all of them"
    )
    positive: Positive = Field(
        "divide",
        description="logits above 0: `divide` by the penalty, or multiply by its `reciprocal`",
    )
    base: Literal["logits", "logprobs"] = Field(
        "logits", description="what is penalised: the `logits`, or `logprobs` made of them"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.penalty == 1 or self.window == 0

    def bind(self, run: Run) -> CountPenalty | None:
        """The tokens seen so far, kept up to date in constant time a token."""
        if self.is_neutral:
            return None
        change = repetition(self.penalty, self.positive)
        made = CountPenalty if self.base == "logits" else _LogprobPenalty
        return made(self.type, change, run, self.scope, self.window)


def repetition(penalty: float, positive: Positive = "divide") -> Change:
    """What the penalty does to the logits of tokens that came."""
    # Of product and quotient the smaller one is right if the penalty is above 1, whatever the sign.
    choose = torch.minimum if penalty > 1 else torch.maximum

    def change(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        factor = number(penalty, logits)
        above = logits / factor if positive == "divide" else logits * factor.reciprocal()
        return choose(logits * factor, above)

    return change


class _LogprobPenalty(CountPenalty):
    """The penalty on log-probabilities."""

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        logprobs = logits.log_softmax(-1, dtype=torch.float64).to(logits.dtype)
        is_empty = logits.amax(-1, keepdim=True) == -math.inf  # it has no distribution
        return super().__call__(state, logprobs.masked_fill(is_empty, -math.inf))
