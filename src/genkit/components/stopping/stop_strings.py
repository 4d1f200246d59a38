"""Certain strings in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from genkit.components.base import StopCriterion
from genkit.components.stopping.row_text import TextEnd
from genkit.components.stopping.text_match import Match, TextMatch
from genkit.components.strings import Strings
from genkit.core.run import Run


class StopStrings(StopCriterion):
    """Ends a row when one of the given strings appears in its text.

    It is the generated text that is searched, not the prompt and not the ids, so that a string is
    found however it falls into tokens. Of several strings the one that is complete first counts, as
    if the text came letter by letter; of those that end at the same letter the longest. The text is
    cut where the string begins, and while streaming no letter is shown that may belong to one.

    vLLM and SGLang do the same. llama.cpp takes of several strings in the text of one token the one
    that begins first, transformers lets a string begin in the prompt and cuts nothing. vLLM looks
    for strings only after its `min_tokens`; `min_new_tokens` does that.

    Errors: an empty string, and a model without a tokenizer.

    A letter is a token here:

    >>> from genkit.testing import ending
    >>> ending(StopStrings(strings=["bc"]), "abcd")
    3
    """

    type: Literal["stop_strings"] = "stop_strings"

    strings: Strings = Field(min_length=1, description="strings that end a row")
    include: bool = Field(False, description="keep the string at the end of the text")
    min_new_tokens: int = Field(
        0, ge=0, description="a string that ends within that many tokens does not count"
    )

    @field_validator("strings")
    @classmethod
    def _none_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("an empty string would end every row at once; leave it out")
        return value

    def bind(self, run: Run) -> _StringMatch:
        """The text of each row, as far as it is needed.

        Raises:
            UnsupportedError: there is no tokenizer.
        """
        return _StringMatch(self, run)


class _StringMatch(TextMatch):
    """Is one of the strings complete?"""

    def __init__(self, spec: StopStrings, run: Run) -> None:
        reach = max(map(len, spec.strings)) - 1
        super().__init__(spec.name, run, reach, spec.include, spec.min_new_tokens)
        self.strings = spec.strings

    def find(self, end: TextEnd) -> Match | None:
        return first_match(end.text, self.strings, max(end.num_old, end.num_ignored))

    def held_back(self, text: str) -> int:
        return max(
            (
                size
                for string in self.strings
                for size in range(1, min(len(string), len(text) + 1))
                if text.endswith(string[:size])
            ),
            default=0,
        )


def first_match(text: str, strings: Sequence[str], num_passed: int = 0) -> Match | None:
    """Where the string begins that is complete first, and which it is.

    Args:
        text: what is searched.
        strings: what is looked for.
        num_passed: strings that end within that many characters do not count.
    """
    starts = (
        (text.find(string, max(0, num_passed - len(string) + 1)), string) for string in strings
    )
    found = [(start + len(string), start, string) for start, string in starts if start >= 0]
    if not found:
        return None
    _, start, string = min(found)
    return start, string
