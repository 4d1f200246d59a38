"""From ids to text, one id at a time."""

from __future__ import annotations

from collections.abc import Iterable

from genkit.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
# A character has at most four bytes, so at most three ids have begun one that is not complete yet.
_LONGEST_INCOMPLETE = 3


class Detokenizer:
    """The text of a growing list of ids, given out as soon as it is certain.

    The pieces joined are the text of all ids. No piece holds half a character, and blanks that a
    tokenizer keeps at the border of two tokens survive, since the last ids that gave text are
    decoded again together with the new one. The cost of an id does not grow with the text.

    Bytes that are no UTF-8 come out as U+FFFD once it is certain that they are none.

    Args:
        tokenizer: what decodes.
        hidden: ids that give no text; by default the tokenizer's special ids.
    """

    def __init__(self, tokenizer: Tokenizer, hidden: frozenset[int] | None = None) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_token_ids if hidden is None else hidden
        self._window: list[int] = []  # ids that gave the last text, then those that gave none yet
        self._num_given = 0  # ids of the window whose text has been given out
        self._given = ""  # the text of the window that has been given out

    def push(self, token_id: int) -> str:
        """The text that became certain with one more id; may be empty."""
        if token_id in self._hidden:
            return ""
        self._window.append(token_id)
        text = self._decode(len(self._window))
        certain = text if not text.endswith(_REPLACEMENT) else self._certain(text)
        piece, self._given = certain[len(self._given) :], certain
        if piece and certain == text:
            self._slide()
        return piece

    def flush(self) -> str:
        """The rest, at the end of the text: bytes that began a character and did not finish it."""
        text = self._decode(len(self._window))
        piece, self._given = text[len(self._given) :], text
        return piece

    def copy(self) -> Detokenizer:
        """An independent one at the same place in the text."""
        other = Detokenizer(self._tokenizer, self._hidden)
        other._window = self._window.copy()
        other._num_given = self._num_given
        other._given = self._given
        return other

    def _certain(self, text: str) -> str:
        """What of a text that ends in U+FFFD no further id can change.

        The last ids may have begun a character, at most three of them; what came before them is
        certain if it ends well. Otherwise the bytes are no text, and only the end of it can change.
        """
        known = max(self._given, text.rstrip(_REPLACEMENT), key=len)
        for count in range(1, _LONGEST_INCOMPLETE + 1):
            size = len(self._window) - count
            if size < self._num_given:
                return known
            shorter = self._decode(size)
            if not shorter.endswith(_REPLACEMENT):
                return max(known, shorter, key=len)
        return max(known, text[:-_LONGEST_INCOMPLETE], key=len)

    def _decode(self, size: int) -> str:
        """The text of the first `size` ids of the window."""
        text = self._tokenizer.decode(self._window[:size])
        if text.startswith(self._given):
            return text
        # A tokenizer with byte tokens may spoil a character that was complete when bytes that are
        # no UTF-8 follow it. What has been given out stands; the rest is decoded by itself.
        return self._given + self._tokenizer.decode(self._window[self._num_given : size])

    def _slide(self) -> None:
        """Keep of the window only the ids whose text was given out last.

        Some ids give another text, or none, where nothing stands before them: a blank, or a byte.
        Then more ids are kept, so that what was given out is seen to stand before what comes.
        """
        for start in range(self._num_given, -1, -1):
            text = self._tokenizer.decode(self._window[start:])
            if text.strip() and self._given.endswith(text):
                self._window, self._given = self._window[start:], text
                break
        self._num_given = len(self._window)


def detokenize(
    tokenizer: Tokenizer, token_ids: Iterable[int], hidden: frozenset[int] | None = None
) -> str:
    """The whole text of some ids: what `Detokenizer` would give piece by piece."""
    hidden = tokenizer.special_token_ids if hidden is None else hidden
    visible = [token_id for token_id in token_ids if token_id not in hidden]
    text = tokenizer.decode(visible)
    if _REPLACEMENT not in text:
        return text
    stream = Detokenizer(tokenizer, hidden)
    return "".join([*map(stream.push, visible), stream.flush()])
