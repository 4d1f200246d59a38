"""No sequence of n tokens of the prompt comes in the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.ngrams import NGrams, forbid_in_rows
from genkit.components.processors.no_repeat_ngram import forbid_seen
from genkit.components.token_counts import CountPenalty
from genkit.core.run import Run
from genkit.core.state import GenerationState


class PromptNoRepeatNGram(LogitsProcessor):
    """Forbids every token that would complete a sequence of n tokens of the prompt.

    ``l'[id] = -inf`` where the last n - 1 tokens of prompt and answer are followed by id in the
    prompt; the answer may repeat itself. With n = 1 no token of the prompt comes. It may forbid all
    tokens that are left, which ends the run with an error. It is `encoder_no_repeat_ngram_size` of
    transformers.

    >>> from genkit.testing import process
    >>> part = PromptNoRepeatNGram(n=2)
    >>> process(part, [4.0, 3.0, 2.0, 1.0], prompt=[0, 1, 0, 2], generated=[3, 0])
    [4.0, -inf, -inf, 1.0]
    """

    type: Literal["prompt_no_repeat_ngram"] = "prompt_no_repeat_ngram"
    may_empty: ClassVar[bool] = True

    n: int = Field(ge=1, description="length of the sequences, in tokens, at least 1")

    def bind(self, run: Run) -> CountPenalty | _PromptBan:
        """The sequences of the prompts."""
        if self.n == 1:
            return CountPenalty(self.type, forbid_seen, run, "prompt")
        return _PromptBan(self.type, self.n, run.prompts)


class _PromptBan:
    """Forbids what each row's prompt has after the tokens that it ends with."""

    def __init__(self, name: str, n: int, prompts: Sequence[Sequence[int]]) -> None:
        self.name = name
        self._width = n - 1
        self._prompts = [NGrams(n) for _ in prompts]
        for ngrams, prompt in zip(self._prompts, prompts, strict=True):
            for token_id in prompt:
                ngrams.push(token_id)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        width = min(self._width, state.length)
        contexts = [tuple(state.row(i)[-width:].tolist()) for i in range(len(state))]
        banned = [
            ngrams.after(context) for ngrams, context in zip(self._prompts, contexts, strict=True)
        ]
        return forbid_in_rows(logits, banned)

    def reorder(self, indices: Sequence[int]) -> None:
        self._prompts = [self._prompts[i] for i in indices]  # they do not change any more

    def rewind(self, n: int) -> None:
        """It holds no token of the answer."""
