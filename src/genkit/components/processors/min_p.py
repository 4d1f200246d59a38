"""The tokens that are not far less probable than the first."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.candidates import Candidates, Row
from genkit.components.ranked import Ranked
from genkit.components.ranking import spared
from genkit.core.run import Run
from genkit.core.state import GenerationState


class MinP(LogitsProcessor):
    """Keeps every token at least `min_p` times as probable as the most probable one.

    Kept when ``l >= l_max + ln(min_p)``, which is ``p >= min_p * p_max`` without a softmax, in the
    precision of the logits. Equal tokens are kept or dropped together. The `min_keep` most probable
    tokens stay in any case; of equal ones the lower ids come first. 0 keeps everything. After a
    temperature T the same tokens are kept by ``min_p ** (1 / T)`` as by `min_p` before it.
    (Nguyen et al. 2024.)

    Probabilities 0.5, 0.25, 0.125 and 0.125; at least 0.15 is asked of each:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(MinP(min_p=0.3), [log(0.5), log(0.25), log(0.125), log(0.125)])
    [-0.6931, -1.3863, -inf, -inf]
    """

    type: Literal["min_p"] = "min_p"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    min_p: float = Field(
        ge=0, le=1, description="the share of the largest probability, 0 to 1; 0 keeps everything"
    )
    min_keep: int = Field(1, ge=1, description="how many tokens are kept at least")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.min_p == 0

    def bind(self, run: Run) -> MinP | None:
        """Nothing to do where min_p is 0."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the improbable tokens at -inf, `[batch, vocab]`."""
        return logits if self.is_neutral else self._cut(logits)

    def narrow(self, row: Row) -> Candidates | None:
        """See `LogitsProcessor.narrow`; None where `min_keep` is no small part of a row."""
        if 4 * self.min_keep > row.size:
            return None
        threshold = row.largest + math.log(self.min_p)
        if self.min_keep > 1:
            threshold = min(threshold, row.reached_by(self.min_keep))
        return row.at_least(threshold)

    def shorten(self, ranked: Ranked) -> bool:
        """See `LogitsProcessor.shorten`."""
        ranked.keep(ranked.num_reaching(math.log(self.min_p)), min_keep=self.min_keep)
        return True

    def _cut(self, logits: torch.Tensor) -> torch.Tensor:
        dropped = logits < logits.amax(-1, keepdim=True) + math.log(self.min_p)
        if self.min_keep > 1:
            dropped = spared(dropped, logits, self.min_keep)
        return logits.masked_fill(dropped, -math.inf)
