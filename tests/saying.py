"""A model that says what it is told to, word by word."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from genkit.components.stopping import MaxNewTokens
from genkit.core.result import Result
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel


class Words:
    """A tokenizer whose tokens are written out; ids are their places in the list."""

    bos_token_id = None

    def __init__(self, *words: str, special: frozenset[int] = frozenset()) -> None:
        self.words = words
        self.vocab_size = len(words)
        self.special_token_ids = special

    def decode(self, ids: Sequence[int]) -> str:
        """The words, one after the other."""
        return "".join(self.words[i] for i in ids if i not in self.special_token_ids)


def say(
    words: Sequence[str],
    *criteria: Any,
    eos: Collection[int] = (),
    special: frozenset[int] = frozenset(),
    prompt: Sequence[int] = (0,),
    **options: Any,
) -> tuple[Result, list[str]]:
    """The result of a model that says these words, and the text streamed."""
    tokenizer = Words(*words, special=special)
    model = ScriptedModel.of_ids(
        range(len(words)), len(words), tokenizer=tokenizer, eos_token_ids=eos
    )
    criteria = (*criteria, MaxNewTokens(limit=len(words)))
    pipeline = Pipeline(model, stop_criteria=criteria, **options)
    result = pipeline.generate(list(prompt))
    pieces = [chunk.text for chunk in pipeline.stream(list(prompt))]
    assert "".join(pieces) == result.text
    return result, pieces
