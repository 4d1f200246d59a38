"""Words that are never completed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor
from genkit.components.processors.continuations import BiasedContinuations, Scope
from genkit.components.strings import Strings
from genkit.core.run import Run
from genkit.errors import UnsupportedError
from genkit.text.tokenizer import Tokenizer


class BadWords(LogitsProcessor):
    """Forbids every token that would complete one of some words.

    A word is a sequence of tokens. Where a row ends with all of it but the last token, the last one
    is forbidden, which for a word of one token is always: ``l' = -inf``.

    A word given as text is banned as the tokens of the text and as those of the text with a space
    before it, since most tokenizers have other tokens inside a sentence than at its beginning.
    (vLLM leaves the second out where it has more tokens or fewer than the first.) What is
    banned are these tokens, not the letters: a model that spells the word with others gets it
    through.

    An end token that is listed is banned like any other; transformers leaves such words out, and
    so does `spare_end_tokens`. The default scope is that of transformers; vLLM looks at the output
    alone. No words change nothing.

    >>> from genkit.testing import process
    >>> part = BadWords(token_ids=[[0], [1, 3]])
    >>> process(part, [1.0, 3.0, 2.0, 2.0], prompt=[0, 1])
    [-inf, 3.0, 2.0, -inf]
    """

    type: Literal["bad_words"] = "bad_words"
    may_empty: ClassVar[bool] = True

    token_ids: tuple[tuple[int, ...], ...] = Field((), description="words as lists of token ids")
    strings: Strings = Field(
        (), description="words as text; each is banned with and without a space before it"
    )
    scope: Scope = Field(
        "all",
        description="where the beginning of a word may lie: `all`, in prompt and answer, or "
        "`output`, in the answer alone",
    )
    spare_end_tokens: bool = Field(
        False, description="leave out words that are just one of the model's end tokens"
    )

    @field_validator("token_ids")
    @classmethod
    def _none_empty(cls, value: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if () in value:
            raise ValueError("a word has at least one token; leave the empty one out")
        return value

    @field_validator("strings")
    @classmethod
    def _none_blank(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(word.strip() for word in value):
            raise ValueError("a word has at least one letter; ban blanks by their token ids")
        return value

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return not self.token_ids and not self.strings

    def bind(self, run: Run) -> BiasedContinuations | None:
        """Compares with the end of each row; None where there are no words.

        Raises:
            InputError: the model does not have one of the ids.
            UnsupportedError: there are words as text, and no tokenizer.
        """
        words = dict.fromkeys([*self.token_ids, *self._words_of_strings(run.tokenizer)], -math.inf)
        if self.spare_end_tokens:
            for token_id in run.eos_token_ids:
                words.pop((token_id,), None)
        return BiasedContinuations(self.type, words, self.scope, run) if words else None

    def _words_of_strings(self, tokenizer: Tokenizer | None) -> Iterator[tuple[int, ...]]:
        for string in self.strings:
            if tokenizer is None:
                raise UnsupportedError(
                    f"bad_words has the text {string!r}, and this model has no tokenizer; give the "
                    "pipeline one, or list token_ids"
                )
            for text in (string.lstrip(), f" {string.lstrip()}"):
                yield tuple(tokenizer.encode(text, add_special_tokens=False))
