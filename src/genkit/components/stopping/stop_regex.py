"""Regular expressions in the text."""

from __future__ import annotations

from typing import Any, Literal

import regex
from pydantic import Field, field_validator

from genkit.components.base import StopCriterion
from genkit.components.stopping.row_text import TextEnd
from genkit.components.stopping.text_match import Match, TextMatch
from genkit.components.strings import Strings
from genkit.core.run import Run
from genkit.errors import PartError

# What looks at the text before the place where it stands. A pattern that is taken for one of these
# and is none is only slow to show text.
_LOOKS_BEHIND = regex.compile(r"\(\?<[=!] | \\[bBmMGK] | \(\?[a-zA-Z]*r", regex.VERBOSE)
# Where the rest of a text begins, `^` matches too, so that more is taken for the beginning of a
# match. In what is denied or not tried again it may be less.
_ANCHORED = regex.compile(r"(?<!\[)\^ | \\A", regex.VERBOSE)
_DECIDES = regex.compile(r"\(\?[!>(] | [*+?}]\+", regex.VERBOSE)

_REPEATS = regex.compile(r"\{(?:\d*,)?(\d+)")
_MOST_REPEATS = 10_000

_SECONDS = 5.0
"""How long a search may take before it counts as one without end."""


class StopRegex(StopCriterion):
    r"""Ends a row when a regular expression matches in its text.

    Patterns are those of the package `regex`, which knows all that Python's `re` knows; flags are
    written into them, as in ``(?i)user:``. As with `stop_strings` it is the generated text that is
    searched, however it falls into tokens, and the match that is complete first counts, as if the
    text came letter by letter: ``\d+`` ends a row at the first digit, ``\d+\n`` after a whole
    number. Of several matches that are complete with the same letter it is the one that begins
    first. What a pattern says of the end of the text, as ``$`` and ``(?!...)`` do, is asked of the
    text as it is so far. The text is cut where the match begins.

    A match has at most `longest` characters, and look-behind sees as many before it, so that the
    cost of a token does not grow with the text. While streaming no letter is shown that may belong
    to a match; where a pattern looks behind (``\b``, ``(?<=...)``) that cannot be told from the
    letters alone, and the stream stays behind by `longest`.

    SGLang has it, with the text of a token as the unit instead of the letter.

    Errors: a pattern that cannot be compiled, one that matches the empty text, a repeat of more
    than 10,000 times, and a model without a tokenizer; while it runs, a search that takes seconds.

    A letter is a token here:

    >>> from genkit.testing import ending
    >>> ending(StopRegex(patterns=[r"\d+;"]), "a12;")
    4
    """

    type: Literal["stop_regex"] = "stop_regex"

    patterns: Strings = Field(min_length=1, description="patterns that end a row")
    include: bool = Field(False, description="keep the match at the end of the text")
    longest: int = Field(128, ge=1, description="the most characters that a match may have")
    min_new_tokens: int = Field(
        0, ge=0, description="a match that ends within that many tokens does not count"
    )

    @field_validator("patterns")
    @classmethod
    def _all_usable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            # To compile `a{1000000000}` takes all memory there is.
            if any(len(n) > 18 or int(n) > _MOST_REPEATS for n in _REPEATS.findall(pattern)):
                raise ValueError(f"{pattern!r} repeats something above {_MOST_REPEATS:,} times")
            try:
                matches_nothing = regex.search(pattern, "") is not None
            except regex.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
            if matches_nothing:
                raise ValueError(f"{pattern!r} matches the empty text and would end every row")
        return value

    def bind(self, run: Run) -> _RegexMatch:
        """The text of each row, as far as it is needed.

        Raises:
            UnsupportedError: there is no tokenizer.
        """
        return _RegexMatch(self, run)


class _RegexMatch(TextMatch):
    """Is a match complete?"""

    def __init__(self, spec: StopRegex, run: Run) -> None:
        super().__init__(spec.name, run, 2 * spec.longest, spec.include, spec.min_new_tokens)
        self.longest = spec.longest
        self.patterns = [regex.compile(pattern) for pattern in spec.patterns]
        self.looks_behind = any(map(_looks_behind, spec.patterns))

    def find(self, end: TextEnd) -> Match | None:
        for size in range(max(end.num_old, end.num_ignored) + 1, len(end.text) + 1):
            begin = max(0, size - 2 * self.longest)
            text, num_ignored = end.text[begin:size], max(0, end.num_ignored - begin)
            matches = (self._search(pattern, text, num_ignored) for pattern in self.patterns)
            found = [(match.start(), match.group()) for match in matches if match is not None]
            if found:
                place, string = min(found, key=lambda match: match[0])
                return begin + place, string
        return None

    def _search(self, pattern: Any, text: str, num_ignored: int) -> Any:
        """The first match in the last characters of a text; those that end too early are none."""
        match = _search(pattern, text, max(0, len(text) - self.longest))
        while num_ignored and match is not None and match.end() <= num_ignored:
            match = _search(pattern, text, match.start() + 1)
        return match

    def held_back(self, text: str) -> int:
        start = max(0, len(text) - (self.longest - 1))
        if self.looks_behind:
            return len(text) - start
        begun = (_search(pattern, text, start, partial=True) for pattern in self.patterns)
        return max((len(text) - match.start() for match in begun if match is not None), default=0)


def _search(pattern: Any, text: str, begin: int, *, partial: bool = False) -> Any:
    """A match from some place on.

    Raises:
        PartError: it takes seconds to find one, as it may with repeats inside repeats.
    """
    try:
        return pattern.search(text, begin, partial=partial, timeout=_SECONDS)
    except TimeoutError:
        raise PartError(
            f"stop_regex: {pattern.pattern!r} took more than {_SECONDS:g} seconds on {len(text)} "
            "characters; write it without repeats inside repeats, such as `(a|aa)+`"
        ) from None


def _looks_behind(pattern: str) -> bool:
    """Whether a match may depend on what stands before it, in a way that shows less of it."""
    anchored = _ANCHORED.search(pattern) and _DECIDES.search(pattern)
    return bool(_LOOKS_BEHIND.search(pattern) or anchored)
