"""The tokens of a model as llguidance needs them: as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llguidance import LLTokenizer, TokenizerWrapper
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from genkit.core.run import Run
from genkit.errors import UnsupportedError
from genkit.text.huggingface import HuggingFaceTokenizer
from genkit.text.tokenizer import Tokenizer

# Characters whose UTF-8 has, all together, every byte there is besides ASCII.
_CHARACTERS = tuple(
    chr(code)
    for code in (
        *range(0x80, 0xC0),
        *range(0x80, 0x800, 0x40),
        0x800,
        *range(0x1000, 0x10000, 0x1000),
        0x10000,
        *range(0x40000, 0x110000, 0x40000),
    )
)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a run.

    Attributes:
        tokenizer: llguidance's.
        end_ids: what ends an answer: the model's end tokens that have a logit.
        not_text: those, and the end token of llguidance's tokenizer, which only holds a place.
    """

    tokenizer: LLTokenizer
    end_ids: frozenset[int]
    not_text: frozenset[int]

    @classmethod
    def of(cls, run: Run, part: str) -> Vocabulary:
        """The tokens of a run, for a part of this name.

        Raises:
            UnsupportedError: there is no tokenizer, or one that llguidance cannot use.
        """
        if run.tokenizer is None:
            raise UnsupportedError(
                f"{part!r} reads the text of tokens, and this model has no tokenizer; give the "
                "pipeline one"
            )
        tokenizer = _ll_tokenizer(_Same(run.tokenizer))
        end_ids = frozenset(i for i in run.eos_token_ids if i < run.vocab_size)
        place_holders = (i for i in tokenizer.eos_tokens if i < run.vocab_size)
        return cls(tokenizer, end_ids, end_ids.union(place_holders))

    def is_text(self, token_id: int) -> bool:
        """Whether the grammar may be given this token."""
        return token_id < self.tokenizer.vocab_size and token_id not in self.not_text


class _Same:
    """A tokenizer as a key: equal to itself only, whatever it says of equality and hashes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tokenizer is self.tokenizer

    def __hash__(self) -> int:
        return id(self.tokenizer)


@lru_cache(maxsize=8)  # it takes a second or two for 50,000 tokens
def _ll_tokenizer(key: _Same) -> LLTokenizer:
    tokenizer = key.tokenizer
    inner = tokenizer.inner if isinstance(tokenizer, HuggingFaceTokenizer) else None
    special = sorted(tokenizer.special_token_ids)
    try:
        if isinstance(inner, PreTrainedTokenizerFast) and special:
            return from_tokenizer(inner, eos_token=special[0])
        return LLTokenizer(TokenizerWrapper(_Spelled(tokenizer)))
    except ValueError as error:
        name = type(inner or tokenizer).__name__
        raise UnsupportedError(f"llguidance cannot use the tokenizer {name}: {error}") from error


class _Spelled:
    """What `TokenizerWrapper` asks for, found out through genkit's contract of tokenizers.

    Special tokens get no bytes, so that no text is made of them. Neither does a token that is part
    of a character and longer than a byte: the contract does not tell which bytes it has.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = [*_spellings(tokenizer), b""]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


def _spellings(tokenizer: Tokenizer) -> Iterator[bytes]:
    """The bytes of every token; special tokens have none, since `decode` omits them."""
    single = _single_bytes(tokenizer)
    # Some tokenizers leave out a blank where a text begins: each token is decoded after another.
    front = tokenizer.encode("a", add_special_tokens=False)
    begin = len(tokenizer.decode(front))
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.decode([*front, token_id])[begin:]
        whole = b"" if "\ufffd" in text else text.encode()
        yield single.get(token_id, whole)


def _single_bytes(tokenizer: Tokenizer) -> dict[int, bytes]:
    """The tokens that are one byte of a character with several."""
    found: dict[int, bytes] = {}
    for character in _CHARACTERS:
        ids = tokenizer.encode(character, add_special_tokens=False)
        raw = character.encode()
        if len(ids) == len(raw) and all("\ufffd" in tokenizer.decode([i]) for i in ids):
            found.update((i, bytes([byte])) for i, byte in zip(ids, raw, strict=True))
    return found
