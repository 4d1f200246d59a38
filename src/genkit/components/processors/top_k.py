"""The k most probable tokens."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState


class TopK(LogitsProcessor):
    """Keeps the k most probable tokens, exactly k of them.

    Among equal logits the lower token id comes first, whatever the batch, device or size of the
    vocabulary. k at or above the vocabulary keeps everything. (Fan et al. 2018.)
    """

    type: Literal["top_k"] = "top_k"
    keeps_argmax: ClassVar[bool] = True

    k: int = Field(ge=1, description="how many tokens are kept, at least 1")

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with all but k tokens a row at -inf, `[batch, vocab]`."""
        if self.k >= logits.shape[-1]:
            return logits
        largest = logits.topk(self.k, dim=-1).values
        dropped = logits < largest.narrow(-1, -1, 1)
        # Without ties at the border that was all. A GPU is not asked, which would wait for it.
        num_dropped = logits.shape[0] * (logits.shape[1] - self.k)
        if logits.device.type != "cpu" or int(dropped.count_nonzero()) < num_dropped:
            dropped = dropped | _surplus(logits, largest)
        return logits.masked_fill(dropped, -math.inf)


def _surplus(logits: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Tokens that equal the k-th value, beyond as many of them as there are among the k.

    `topk` breaks ties arbitrarily, so only its values are used; the lower ids are kept.
    """
    kth = largest.narrow(-1, -1, 1)
    equal = logits == kth
    return equal & (equal.cumsum(-1) > (largest == kth).sum(-1, keepdim=True))
