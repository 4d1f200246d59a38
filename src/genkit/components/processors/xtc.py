"""Now and then without the most probable tokens."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor, check_token_ids
from genkit.components.ranking import Ties, probabilities
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Xtc(LogitsProcessor):
    """Excludes top choices: all tokens above a threshold but the least probable of them.

    Where two or more tokens have ``p >= threshold``, all but the least probable of them are
    dropped; among equal ones the highest id stays, with ``ties: keep`` all of them. With ``>``
    instead of ``>=`` a token must lie above the threshold to count (MLX).

    It happens with a probability: `mode` is ``roll``, and each row has a number drawn for the step.
    (llama.cpp, MLX, text-generation-webui.) With ``expectation`` nothing is drawn; the logits of
    the dropped tokens are lowered so far that each token has the probability that it has on the
    average of all rolls: by ``ln((1 - q) / (1 + q * m / (1 - m)))``, where q is the probability of
    dropping and m the mass that would be dropped. (exllamav3.)

    `protected_ids` are never dropped (MLX), or with ``protection: skip_step`` nothing is where one
    of them would be (text-generation-webui); newlines and end tokens are what this is for. Nothing
    is dropped either where fewer than `min_keep` tokens would be left. A probability of 0, or a
    threshold above 0.5, which two tokens cannot reach, changes nothing. (p-e-w 2024.)

    Probabilities 0.4, 0.3, 0.2 and 0.1:

    >>> from genkit.testing import process
    >>> from math import log
    >>> process(Xtc(probability=1.0, threshold=0.15), [log(0.4), log(0.3), log(0.2), log(0.1)])
    [-inf, -inf, -1.6094, -2.3026]
    """

    type: Literal["xtc"] = "xtc"

    probability: float = Field(ge=0, le=1, description="how often tokens are dropped, from 0 to 1")
    threshold: float = Field(
        0.1, ge=0, le=1, description="the probability from which on a token is a top choice"
    )
    mode: Literal["roll", "expectation"] = Field(
        "roll", description="draw whether to drop, or lower the dropped tokens by the average"
    )
    comparison: Literal[">=", ">"] = Field(
        ">=", description="whether a token exactly at the threshold is a top choice"
    )
    ties: Ties = Field(
        "by_id",
        description="of tokens that equal the least probable top choice the highest id stays "
        "(`by_id`), or all of them (`keep`)",
    )
    min_keep: int = Field(
        1, ge=1, description="nothing is dropped where fewer tokens would be left"
    )
    protected_ids: tuple[int, ...] = Field((), description="token ids that are not dropped")
    protection: Literal["keep", "skip_step"] = Field(
        "keep",
        description="where a protected token would be dropped, it stays, or nothing is dropped",
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.probability == 0 or self.threshold > 0.5

    def bind(self, run: Run) -> _TopChoices | None:
        """The processor with the purpose of its draws.

        Raises:
            InputError: a protected id is none of the model's.
        """
        check_token_ids("protected_ids", self.protected_ids, run.vocab_size)
        return None if self.is_neutral else _TopChoices(self, run.purpose)


class _TopChoices(Rowless):
    """Excludes them."""

    def __init__(self, options: Xtc, purpose: str) -> None:
        super().__init__(options.type)
        self.options = options
        self.purpose = purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        probs, options = probabilities(logits), self.options
        dropped = self._dropped(logits, probs)
        if options.mode == "roll":
            rolled = state.rng.uniform(self.purpose) < options.probability
            return logits.masked_fill(dropped & rolled.unsqueeze(-1), -math.inf)
        # The kept mass is summed, since 1 - m would lose a small one to rounding.
        mass = (probs * dropped).sum(-1, keepdim=True)
        kept_mass = (probs * ~dropped).sum(-1, keepdim=True)
        factor = (1 - options.probability) / (1 + options.probability * mass / kept_mass)
        return torch.where(dropped, (logits + factor.log()).to(logits.dtype), logits)

    def _dropped(self, logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        """The top choices to exclude, bool `[batch, vocab]`."""
        options, allowed = self.options, logits > -math.inf
        threshold = options.threshold
        top = (probs >= threshold if options.comparison == ">=" else probs > threshold) & allowed
        least = logits.where(top, math.inf).amin(-1, keepdim=True)
        dropped = top & (logits > least)
        if options.ties == "by_id":
            equal = top & (logits == least)
            dropped |= equal & (equal.cumsum(-1) < equal.sum(-1, keepdim=True))
        ids = list(options.protected_ids)
        skipped = dropped[:, ids].any(-1, keepdim=True) & (options.protection == "skip_step")
        dropped[:, ids] = False
        left = (allowed & ~dropped).sum(-1, keepdim=True)
        return dropped & ~skipped & (left >= options.min_keep)
