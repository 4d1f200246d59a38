"""The end of a row's text, token by token."""

from __future__ import annotations

from typing import NamedTuple

from genkit.text.stream import Detokenizer


class TextEnd(NamedTuple):
    """The end of a row's text, after one more token.

    Attributes:
        text: as much of the end as is looked at.
        offset: where it begins in the whole text, in characters.
        num_old: how many characters of it were there before the token.
        num_ignored: what ends within that many characters of it does not count.
    """

    text: str
    offset: int
    num_old: int
    num_ignored: int = 0


class _Moment(NamedTuple):
    """What is known before the next token."""

    stream: Detokenizer
    tail: str = ""
    offset: int = 0  # of the tail in the whole text
    ignored: int = 0  # characters of the whole text


class RowText:
    """The end of a row's text after each of its tokens, so that tokens can be taken back.

    Args:
        stream: gives the text of the tokens.
        reach: how many characters before the text of a new token are looked at.
        num_ignored: what ends within the text of that many tokens does not count.
    """

    def __init__(self, stream: Detokenizer, reach: int, num_ignored: int = 0) -> None:
        self._reach = reach
        self._num_ignored = num_ignored
        self._moments = [_Moment(stream)]

    def push(self, token_id: int) -> TextEnd:
        """The end of the text with one more token."""
        stream, tail, offset, ignored = self._moments[-1]
        stream = stream.copy()
        text = tail + stream.push(token_id)
        if len(self._moments) <= self._num_ignored:
            ignored = offset + len(text)
        surplus = max(0, len(text) - self._reach)
        self._moments.append(_Moment(stream, text[surplus:], offset + surplus, ignored))
        return TextEnd(text, offset, len(tail), max(0, ignored - offset))

    def rewind(self, n: int) -> None:
        """Forget the last `n` tokens."""
        del self._moments[len(self._moments) - n :]

    def copy(self) -> RowText:
        """An independent one at the same place in the text."""
        other = RowText(self._moments[0].stream, self._reach, self._num_ignored)
        other._moments = self._moments.copy()
        return other
