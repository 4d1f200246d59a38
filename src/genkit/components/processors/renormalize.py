"""Logits whose exponentials add up to 1."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState


class Renormalize(LogitsProcessor):
    """Turns logits into log-probabilities: the distribution stays, the numbers change.

    ``l' = l - ln(sum(exp(l)))``, a log-softmax over the tokens that are still allowed, its sum in
    float64. It matters to what comes after it and depends on the numbers themselves, such as
    a repetition penalty. (``renormalize_logits`` of transformers.)

    >>> from genkit.testing import process
    >>> process(Renormalize(), [2.0, 2.0, 2.0, 2.0])
    [-1.3863, -1.3863, -1.3863, -1.3863]
    """

    type: Literal["renormalize"] = "renormalize"
    keeps_argmax: ClassVar[bool] = True

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The log-probabilities, `[batch, vocab]`."""
        logprobs = logits.log_softmax(-1, dtype=torch.float64).to(logits.dtype)
        # In a row without an allowed token the log-softmax is NaN.
        return logprobs.masked_fill_(logits == -math.inf, -math.inf)
