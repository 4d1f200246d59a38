"""Sequences of tokens across which nothing is taken for a repetition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

from genkit.text.tokenizer import Tokenizer

__all__ = ["Breakers", "breaker_sequences"]

_MOST_TAIL_TOKENS = 20

_texts: WeakKeyDictionary[Tokenizer, tuple[str, ...]] = WeakKeyDictionary()


class Breakers:
    """Some sequences of ids.

    Args:
        sequences: none of them empty.
    """

    def __init__(self, sequences: Iterable[tuple[int, ...]]) -> None:
        self._sequences = frozenset(sequences)
        self._sizes = sorted({len(sequence) for sequence in self._sequences})

    def has(self, token_id: int) -> bool:
        """Whether a token is one by itself."""
        return (token_id,) in self._sequences

    def size_at_end(self, ids: list[int]) -> int:
        """How many tokens the shortest one has with which a text ends; 0 if there is none."""
        found = (size for size in self._sizes if tuple(ids[-size:]) in self._sequences)
        return next(found, 0)


def breaker_sequences(tokenizer: Tokenizer, strings: Iterable[str]) -> set[tuple[int, ...]]:
    """The sequences of tokens that hold one of some strings, as llama.cpp finds them.

    A token in whose text the string stands is a sequence of its own. A token whose text ends with
    the beginning of the string is one together with the tokens of the rest, of which 20 count.
    """
    texts = _token_texts(tokenizer)
    return {sequence for string in strings for sequence in _sequences(tokenizer, texts, string)}


def _sequences(
    tokenizer: Tokenizer, texts: Sequence[str], string: str
) -> Iterator[tuple[int, ...]]:
    # A token cannot end with more than it has.
    most = min(len(string), 1 + max(map(len, texts), default=0))
    beginnings = tuple(string[:size] for size in range(1, most))
    tails = {
        each: tokenizer.encode(string[len(each) :], add_special_tokens=False)[:_MOST_TAIL_TOKENS]
        for each in beginnings
    }
    for token_id, text in enumerate(texts):
        if string in text:
            yield (token_id,)
        elif text.endswith(beginnings):
            yield from ((token_id, *tails[each]) for each in beginnings if text.endswith(each))


def _token_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The text of every token; of a large vocabulary that takes a second, hence once."""
    texts = _texts.get(tokenizer)
    if texts is None:
        texts = tuple(map(tokenizer.token_text, range(tokenizer.vocab_size)))
        _texts[tokenizer] = texts
    return texts
