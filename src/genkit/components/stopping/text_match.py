"""What criteria that read text have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.components.stopping.row_text import RowText, TextEnd
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError
from genkit.text.stream import Detokenizer

Match = tuple[int, str]
"""Where in the text a match begins, in characters, and what it is."""


class TextMatch:
    """Has the text of a row what ends it? A subclass says where.

    Args:
        name: of the criterion.
        run: what it is bound for.
        reach: how many characters before the text of a new token are looked at.
        include: whether what ends the row stays in its text.
        min_new_tokens: what ends within the text of that many tokens ends nothing.

    Raises:
        UnsupportedError: there is no tokenizer.
    """

    def __init__(self, name: str, run: Run, reach: int, include: bool, min_new_tokens: int) -> None:
        if run.tokenizer is None:
            raise UnsupportedError(
                f"the stop criterion {name!r} reads text, and this model has no tokenizer; "
                "give the pipeline one, or use stop_token_ids"
            )
        hidden = run.tokenizer.special_token_ids | run.eos_token_ids
        self.name = name
        self.include = include
        self.texts = [
            RowText(Detokenizer(run.tokenizer, hidden), reach, min_new_tokens) for _ in run.prompts
        ]
        self.found: list[Match | None] = [None] * len(self.texts)

    def find(self, end: TextEnd) -> Match | None:
        """What is complete with one of the new characters, placed in `end.text`."""
        raise NotImplementedError

    def held_back(self, text: str) -> int:
        """How many characters at the end of a text may belong to what ends the row."""
        raise NotImplementedError

    def __call__(self, state: GenerationState) -> torch.Tensor:
        ids = state.last_ids.tolist()
        self.found = [self._look(text.push(i)) for text, i in zip(self.texts, ids, strict=True)]
        return torch.tensor([match is not None for match in self.found], device=state.device)

    def _look(self, end: TextEnd) -> Match | None:
        match = self.find(end)
        return None if match is None else (end.offset + match[0], match[1])

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        match = self.found[i]
        assert match is not None  # asked only for rows that this criterion has ended
        position, string = match
        text_end = position + (len(string) if self.include else 0)
        return {"matched": string, "position": position, "text_end": text_end}

    def reorder(self, indices: Sequence[int]) -> None:
        self.texts = [self.texts[i].copy() for i in indices]
        self.found = [self.found[i] for i in indices]

    def rewind(self, n: int) -> None:
        for text in self.texts:
            text.rewind(n)
