"""No sequence of n tokens comes twice."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.history import RowMemories
from genkit.components.ngrams import NGrams, forbid_in_rows
from genkit.components.token_counts import CountPenalty
from genkit.core.run import Run
from genkit.core.state import GenerationState


class NoRepeatNGram(LogitsProcessor):
    """Forbids every token that would complete a sequence of n tokens a second time.

    ``l'[id] = -inf`` where the last n - 1 tokens were followed by id before: in prompt and answer,
    as in transformers and onnxruntime-genai, or with `scope: output` in the answer alone. With
    n = 1 every token comes at most once. It may forbid all tokens that are left, which ends the run
    with an error. Padding is never in the history. (Paulus et al. 2017.)

    >>> from genkit.testing import process
    >>> process(NoRepeatNGram(n=2), [4.0, 3.0, 2.0, 1.0], prompt=[0, 1, 0, 2, 0])
    [4.0, -inf, -inf, 1.0]
    """

    type: Literal["no_repeat_ngram"] = "no_repeat_ngram"
    may_empty: ClassVar[bool] = True

    n: int = Field(ge=1, description="length of the sequences, in tokens, at least 1")
    scope: Literal["all", "output"] = Field(
        "all", description="the tokens that count: `all`, or those of the `output`"
    )

    def bind(self, run: Run) -> CountPenalty | _Ban:
        """The sequences so far, kept up to date in constant time a token."""
        if self.n == 1:
            return CountPenalty(self.type, forbid_seen, run, self.scope)
        memories = RowMemories([NGrams(self.n) for _ in run.prompts], self.scope)
        return _Ban(self.type, memories)


def forbid_seen(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The logits of tokens that came, which they shall not again."""
    return torch.full_like(logits, -math.inf)


class _Ban:
    """Forbids what each row's n-grams do not allow."""

    def __init__(self, name: str, memories: RowMemories[NGrams]) -> None:
        self.name = name
        self._memories = memories
        self.reorder = memories.reorder
        self.rewind = memories.rewind

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self._memories.look(state)
        banned = [ngrams.after(ngrams.context()) for ngrams in self._memories.rows]
        return forbid_in_rows(logits, banned)
