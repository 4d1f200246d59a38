"""The tokens that are about as surprising as is to be expected."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ranking import Ties, beyond, probabilities, spared
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TypicalP(LogitsProcessor):
    """Keeps the most typical tokens until they hold the mass p: locally typical sampling.

    A token is the more typical the nearer its surprise ``-ln p_i`` is to the expected surprise, the
    entropy of the row. That distance is ``|l_i - m|`` with the expected logit ``m = sum(p_i l_i)``.
    Tokens rank by it, the least first, equal ones by the lower id. Let ``above`` be the mass of the
    tokens that rank before one. It is kept where ``rule`` holds:

    - ``above<p``: the smallest set that holds at least p. (transformers.)
    - ``above<=p``: one more where the mass is exactly p. (llama.cpp.)

    The `min_keep` most typical tokens stay in any case, one at least, and with ``ties: keep``, as
    in transformers, every token that is as typical as the last one that the rule keeps. 1 keeps
    everything. The most probable token may well be dropped. A forbidden token has no part in any of
    it; there llama.cpp computes 0 times infinity, and what it keeps follows no rule. (Meister et
    al. 2022.)

    Probabilities 0.6, 0.2, 0.1 and 0.1, whose entropy is 1.09 nats; their surprise is 0.51, 1.61,
    2.3 and 2.3, so that the second is the most typical:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(TypicalP(p=0.15), [log(0.6), log(0.2), log(0.1), log(0.1)])
    [-inf, -1.6094, -inf, -inf]
    """

    type: Literal["typical_p"] = "typical_p"
    acts_on_allowed: ClassVar[bool] = True

    p: float = Field(ge=0, le=1, description="the mass to keep, from 0 to 1; 1 keeps everything")
    rule: Literal["above<p", "above<=p"] = Field(
        "above<p",
        description="what holds for a token that is kept: `above` is the mass ranked before it",
    )
    ties: Ties = Field(
        "by_id",
        description="of tokens as typical as the last one kept, none with a higher id stays "
        "(`by_id`), or all of them (`keep`)",
    )
    min_keep: int = Field(1, ge=1, description="how many tokens are kept at least")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.p == 1

    def bind(self, run: Run) -> TypicalP | None:
        """Nothing to do where p is 1."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the less typical tokens at -inf, `[batch, vocab]`."""
        if self.is_neutral:  # rounding would drop tokens that are too improbable to move the sum
            return logits
        probs = probabilities(logits)
        typicality = _distance_from_mean(logits, probs).neg_()
        ranked, order = typicality.sort(dim=-1, descending=True, stable=True)
        running = probs.gather(-1, order).cumsum_(-1)
        above, limit = running[:, :-1], running[:, -1:] * self.p
        kept = above < limit if self.rule == "above<p" else above <= limit
        count = kept.sum(-1, keepdim=True) + 1
        dropped = beyond(typicality, ranked, count, self.ties)
        if self.min_keep > 1:
            dropped = spared(dropped, typicality, self.min_keep)
        return logits.masked_fill(dropped, -math.inf)


def _distance_from_mean(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """How far each logit is from the expected one, float64 `[batch, vocab]`; forbidden: inf."""
    shifted = logits.double() - logits.amax(-1, keepdim=True)
    mean = (probs * shifted).nansum(-1, keepdim=True)  # NaN is 0 times -inf
    return shifted.sub_(mean).abs_()
