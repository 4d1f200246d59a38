"""Where each row stands in the grammar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from genkit.core.state import GenerationState
from genkit_structured.vocabulary import Vocabulary


class RowMatcher:
    """How far one answer has gone through the grammar.

    Args:
        matcher: llguidance's, for this row alone.
        vocabulary: the tokens of the run.

    Attributes:
        matcher: it has taken all tokens of the answer but those in `beyond`.
        beyond: an end token, or one that does not fit, and whatever came after it.
    """

    def __init__(
        self, matcher: LLMatcher, vocabulary: Vocabulary, beyond: Sequence[int] = ()
    ) -> None:
        self.matcher = matcher
        self.vocabulary = vocabulary
        self.beyond = list(beyond)

    def push(self, token_id: int) -> None:
        """Take one more token."""
        fits = not self.beyond and self.vocabulary.is_text(token_id)
        if not (fits and self.matcher.try_consume_tokens([token_id])):
            self.beyond.append(token_id)

    def pop(self, n: int) -> None:
        """Forget the last `n` tokens."""
        kept = max(0, len(self.beyond) - n)
        taken = n - (len(self.beyond) - kept)
        del self.beyond[kept:]
        self.matcher.rollback(taken)

    def copy(self) -> RowMatcher:
        """An independent one at the same place."""
        return RowMatcher(self.matcher.deep_copy(), self.vocabulary, self.beyond)

    @property
    def has_ended(self) -> bool:
        """Whether the answer is complete, and only an end token can follow."""
        if self.beyond:
            ended = self.beyond[0] in self.vocabulary.end_ids
        else:
            ended = self.matcher.is_stopped()
        return ended and self.matcher.is_accepting()

    def allow(self, allowed: NDArray[np.bool_]) -> None:
        """Mark the tokens that may be next.

        Args:
            allowed: bool `[vocab]`, all false.

        Raises:
            RuntimeError: there is none, or llguidance has reached one of its limits.
        """
        if not self.beyond:
            size = min(len(allowed), self.vocabulary.tokenizer.vocab_size)
            bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
            allowed[:size] = np.unpackbits(bits, count=size, bitorder="little")
        if self.matcher.is_error():
            raise RuntimeError(self._why_it_stopped())
        may_end = self.has_ended if self.beyond else self.matcher.is_accepting()
        allowed[list(self.vocabulary.not_text)] = False
        allowed[list(self.vocabulary.end_ids)] = may_end

    def _why_it_stopped(self) -> str:
        reason, _, _ = self.matcher.get_error().partition("\n")  # its whole state follows
        if reason.startswith("NoExtension"):
            return (
                "no token goes on with the answer: the vocabulary lacks a byte of the grammar, or "
                "it led where nothing follows, as llguidance lets a closed `patternProperties` do"
            )
        return f"llguidance cannot follow the grammar any further: {reason}"


class Matchers:
    """The matcher of each row, given each token once.

    Args:
        name: of the part.
        rows: one for each row, at the beginning of its answer.
    """

    def __init__(self, name: str, rows: Sequence[RowMatcher]) -> None:
        self.name = name
        self.rows = list(rows)
        self._num_seen = 0

    def look(self, state: GenerationState) -> None:
        """Give them the tokens that were generated since the last look."""
        new = state.most_generated - self._num_seen
        rows: list[list[int]] = state.since(state.length - new).tolist()
        for row, token_ids in zip(self.rows, rows, strict=True):
            for token_id in token_ids:
                row.push(token_id)
        self._num_seen += new

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        self.rows = [self.rows[i].copy() for i in indices]

    def rewind(self, n: int) -> None:
        """Forget the last `n` tokens of every row.

        Some of them may not have been looked at yet. Then too many are forgotten, and those that
        are still there are looked at again.
        """
        known = min(n, self._num_seen)
        for row in self.rows:
            row.pop(known)
        self._num_seen -= known
