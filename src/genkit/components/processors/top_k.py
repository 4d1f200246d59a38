"""The k most probable tokens."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.candidates import Candidates, Row
from genkit.components.ranked import Ranked
from genkit.components.ranking import Ties, beyond
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TopK(LogitsProcessor):
    """Keeps the k most probable tokens.

    Kept when ``rank <= k``. Tokens rank by logit, the first is the most probable; among equal ones
    the lower id comes first, whatever the batch, device or size of the vocabulary.

    With ``ties: keep`` every token stays that equals the k-th, so that there can be more than k: so
    do transformers and vLLM, while llama.cpp, MLX, SGLang and onnxruntime-genai keep exactly k. A k
    at or above the vocabulary keeps everything; it is never more than the tokens that are still
    allowed. (Fan et al. 2018.)

    >>> from genkit.testing import process
    >>> process(TopK(k=2), [1.0, 3.0, 2.0, 2.0])
    [-inf, 3.0, 2.0, -inf]
    >>> process(TopK(k=2, ties="keep"), [1.0, 3.0, 2.0, 2.0])
    [-inf, 3.0, 2.0, 2.0]
    """

    type: Literal["top_k"] = "top_k"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    k: int = Field(ge=1, description="how many tokens are kept, at least 1")
    ties: Ties = Field(
        "by_id",
        description="of tokens that equal the k-th, those with lower ids stay (`by_id`), "
        "or all of them (`keep`)",
    )
    min_keep: int = Field(
        1, ge=1, description="how many tokens are kept at least, where that is more than k"
    )

    def bind(self, run: Run) -> TopK | None:
        """Nothing to do where k reaches the size of the vocabulary."""
        return self if self._count < run.vocab_size else None

    @property
    def _count(self) -> int:
        return max(self.k, self.min_keep)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with all but k tokens a row at -inf, `[batch, vocab]`."""
        return self._cut(logits)

    def narrow(self, row: Row) -> Candidates | None:
        """See `LogitsProcessor.narrow`; None where k is no small part of the vocabulary."""
        if 4 * self._count > row.size:
            return None
        return row.at_least(row.reached_by(self._count))

    def shorten(self, ranked: Ranked) -> bool:
        """See `LogitsProcessor.shorten`."""
        ranked.keep(self._count, self.ties)
        return True

    def _cut(self, logits: torch.Tensor) -> torch.Tensor:
        if self._count >= logits.shape[-1]:
            return logits
        largest = logits.topk(self._count, dim=-1).values
        dropped = beyond(logits, largest, self._count, self.ties)
        return logits.masked_fill(dropped, -math.inf)
