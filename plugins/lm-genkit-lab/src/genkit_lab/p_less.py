"""The tokens that are more probable than that a guess is right."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState


class PLess(LogitsProcessor):
    """Keeps every token at least as probable as it is that two draws agree.

    Kept when ``p >= L = sum(p ** 2)``: one draw is taken as the truth and another as a guess, and L
    is the chance that the guess is right. It is never above the largest p, so that one token stays,
    and it rises as the model becomes certain. There is nothing to tune. With ``norm`` the chance
    to agree by luck alone is taken off, ``(n L - 1) / (n - 1)`` with n allowed tokens, which keeps
    more of them. (The paper's n is the whole vocabulary: the same unless tokens are forbidden
    before.) ("p-less Sampling: A Robust Hyperparameter-Free Approach for LLM Decoding", Tan, Wu
    and Howard 2025, arXiv 2509.23234.)

    Probabilities 0.5, 0.3, 0.1 and 0.1 give ``L = 0.36``, and ``(4 * 0.36 - 1) / 3 = 0.147``:

    >>> from genkit.testing import process
    >>> from math import log
    >>> row = [log(0.5), log(0.3), log(0.1), log(0.1)]
    >>> process(PLess(), row), process(PLess(norm=True), row)
    ([-0.6931, -inf, -inf, -inf], [-0.6931, -1.204, -inf, -inf])
    """

    type: Literal["p_less"] = "p_less"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    norm: bool = Field(False, description="whether to take off what is agreed by luck alone")

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        probs = logits.softmax(-1, dtype=torch.float64)
        least = probs.square().sum(-1, keepdim=True)
        if self.norm:
            count = (logits > -math.inf).sum(-1, keepdim=True).clamp(min=2)  # one stays anyway
            least = (count * least - 1) / (count - 1)
        # Where all are equal, rounding may bring the sum above each of them.
        least = least.minimum(probs.amax(-1, keepdim=True))
        return logits.masked_fill(probs < least, -math.inf)
