"""The smallest set of tokens that holds the mass p."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.candidates import Candidates, Row
from genkit.components.ranked import Ranked
from genkit.components.ranking import Ties, beyond, spared, weights
from genkit.core.run import Run
from genkit.core.state import GenerationState

_FEW = 64
"""How many tokens hold the mass of most rows of a language model."""

_MARGIN = 5e-5
"""More than the part by which the share of some tokens, found from rough weights, is wrong."""


class TopP(LogitsProcessor):
    """Keeps the most probable tokens until they hold the mass p: nucleus sampling.

    Tokens rank by logit, equal ones by the lower id. Let ``above`` be the mass of the tokens that
    rank before one, and ``through`` that mass and its own. It is kept where ``rule`` holds:

    - ``above<p``: the smallest set that holds at least p. (transformers, vLLM, llama.cpp, MLX.)
    - ``above<=p``: one more where the mass is exactly p. (SGLang, guidance.)
    - ``through<=p``: the largest set that holds no more than p. (exllamav3.)

    The most probable token always stays, with ``min_keep`` so many of them. With ``ties: keep``
    every token stays that equals the last one that the rule keeps, as in MLX. Masses are those of
    the tokens that are still allowed at this point of the chain, summed in float64 from the most
    probable token on, and p is a share of their sum. 1 keeps everything. (Holtzman et al. 2019.)

    Probabilities 0.25, 0.125, 0.125 and 0.5; the mass above the second 0.125 is 0.875:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(TopP(p=0.8), [log(0.25), log(0.125), log(0.125), log(0.5)])
    [-1.3863, -2.0794, -inf, -0.6931]
    >>> process(TopP(p=0.8, rule="through<=p"), [log(0.25), log(0.125), log(0.125), log(0.5)])
    [-1.3863, -inf, -inf, -0.6931]
    """

    type: Literal["top_p"] = "top_p"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True
    needs_total: ClassVar[bool] = True

    p: float = Field(ge=0, le=1, description="the mass to keep, from 0 to 1; 1 keeps everything")
    rule: Literal["above<p", "above<=p", "through<=p"] = Field(
        "above<p",
        description="what holds for a token that is kept: `above` is the mass ranked before it, "
        "`through` includes its own",
    )
    ties: Ties = Field(
        "by_id",
        description="of tokens that equal the last one kept, none with a higher id stays "
        "(`by_id`), or all of them (`keep`)",
    )
    min_keep: int = Field(1, ge=1, description="how many tokens are kept at least")

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.p == 1

    def bind(self, run: Run) -> TopP | None:
        """Nothing to do where p is 1."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits with the tail of each row at -inf, `[batch, vocab]`."""
        if self.is_neutral:  # rounding would drop tokens that are too improbable to move the sum
            return logits
        ranked = logits.sort(dim=-1, descending=True).values
        running = weights(ranked, ranked[:, :1]).cumsum_(-1)
        return self._cut(logits, ranked, running, running[:, -1:] * self.p)

    def narrow(self, row: Row) -> Candidates | None:
        """See `LogitsProcessor.narrow`."""
        threshold = row.reached_by(min(max(_FEW, self.min_keep), row.size))
        found = row.at_least(threshold)
        # From a sample a little more is taken than is needed.
        for share, is_guess in (self.p + (1 - self.p) / 4, True), (self.p, False):
            if self._is_held(row, found):
                return found
            threshold = min(row.above_which_lies(share, guess=is_guess), threshold)
            found = row.at_least(threshold)
        return found if self._is_held(row, found) else None

    def _is_held(self, row: Row, found: Candidates) -> bool:
        return row.rough_weight(found) > row.rough_total * (self.p + _MARGIN)

    def shorten(self, ranked: Ranked) -> bool:
        """See `LogitsProcessor.shorten`; False where rounding may make a difference."""
        num_below = ranked.num_below(self.p)
        if num_below is None:
            return False
        # The token that crosses p stays, unless a token may not go beyond it.
        crossing = 0 if self.rule == "through<=p" else 1
        ranked.keep(num_below + crossing, self.ties, self.min_keep)
        return True

    def _cut(
        self,
        logits: torch.Tensor,
        ranked: torch.Tensor,
        running: torch.Tensor,
        limit: torch.Tensor,
    ) -> torch.Tensor:
        above, through = running[:, :-1], running[:, 1:]  # of all tokens but the first
        match self.rule:
            case "above<p":
                kept = above < limit
            case "above<=p":
                kept = above <= limit
            case "through<=p":
                kept = through <= limit
        count = kept.sum(-1, keepdim=True) + 1
        dropped = beyond(logits, ranked, count, self.ties)
        if self.min_keep > 1:
            dropped = spared(dropped, logits, self.min_keep)
        return logits.masked_fill(dropped, -math.inf)
