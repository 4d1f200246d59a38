"""Tokens are known to llguidance by their bytes, whatever tokenizer they are of."""

import json
import math
from collections.abc import Sequence
from itertools import chain

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from genkit.errors import UnsupportedError
from genkit.testing import ByteTokenizer, process
from genkit.text.huggingface import HuggingFaceTokenizer
from genkit_structured.structured import Structured

TEXTS = ['{"name": "Ann", "age": 3}', "😨😨 😀😀 żółw", "yes and no"] * 3


def byte_level() -> HuggingFaceTokenizer:
    """A tokenizer over bytes that has merged some, halves of characters among them."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(TEXTS, trainer)
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>"))


class Words(ByteTokenizer):
    """Bytes, and a word that takes the blank before it away at the beginning of a text."""

    word = ByteTokenizer.vocab_size
    vocab_size = ByteTokenizer.vocab_size + 1

    def decode(self, token_ids: Sequence[int]) -> str:
        pieces = ([*b" yes"] if i == self.word else [i] for i in token_ids)
        text = super().decode([*chain.from_iterable(pieces)])
        return text.removeprefix(" ") if token_ids[0] == self.word else text

    def token_text(self, token_id: int) -> str:
        return " yes" if token_id == self.word else super().token_text(token_id)


def allowed(tokenizer: HuggingFaceTokenizer | ByteTokenizer, regex: str, text: str) -> set[str]:
    """The spellings of the tokens that may follow a text."""
    generated = tokenizer.encode(text, add_special_tokens=False)
    logits = [0.0] * tokenizer.vocab_size
    eos = [tokenizer.eos_token_id or 0]
    made = process(
        Structured(regex=regex), logits, generated=generated, eos=eos, tokenizer=tokenizer
    )
    return {tokenizer.token_text(i) for i, x in enumerate(made) if x > -math.inf}


def test_tokens_of_a_byte_level_tokenizer_are_bytes() -> None:
    tokenizer = byte_level()
    assert len(tokenizer.encode("😴", add_special_tokens=False)) > 1
    assert allowed(tokenizer, "yes|no", "") == {"y", "yes", "n", "no"}
    assert allowed(tokenizer, "(😴|x)[!?]", "😴") == {"!", "?"}
    assert "<end>" in allowed(tokenizer, "[😀-🙏]+", "😴")


@pytest.mark.parametrize("text", [json.dumps({"ż": "😨"}, ensure_ascii=False), '{"ż": ""}'])
def test_every_token_of_a_text_of_the_grammar_is_allowed(text: str) -> None:
    part = Structured(
        json_schema={
            "type": "object",
            "properties": {"ż": {"type": "string"}},
            "required": ["ż"],
            "additionalProperties": False,
        }
    )
    for tokenizer in (byte_level(), ByteTokenizer()):
        end = tokenizer.eos_token_id
        assert end is not None
        ids = tokenizer.encode(text, add_special_tokens=False)
        for i, token_id in enumerate([*ids, end]):
            made = process(
                part,
                [0.0] * tokenizer.vocab_size,
                generated=ids[:i],
                eos=[end],
                tokenizer=tokenizer,
            )
            assert made[token_id] == 0.0, (text, i)
            assert (made[end] == 0.0) == (i == len(ids))


def test_a_blank_in_front_of_a_word_is_part_of_it() -> None:
    tokenizer = Words()
    assert allowed(tokenizer, "a(yes| y)", "a") == {"y", " "}
    assert allowed(tokenizer, "a( yes|!)", "a") == {"!", " ", " yes"}


class Comparable(ByteTokenizer):
    """Equal to others of its class, so that Python gives it no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable)


def test_a_tokenizer_needs_no_hash_and_is_no_other_one_that_it_is_equal_to() -> None:
    class Cased(Comparable):
        def decode(self, token_ids: Sequence[int]) -> str:
            return super().decode(token_ids).swapcase()

    assert Comparable() == Cased()
    assert [allowed(each, "[ab]", "") for each in (Comparable(), Cased())] == [
        {"a", "b"},
        {"A", "B"},
    ]


def test_a_tokenizer_that_llguidance_does_not_take_is_named() -> None:
    inner = Tokenizer(models.WordLevel({"a": 0, "<end>": 1}, unk_token="a"))
    tokenizer = HuggingFaceTokenizer(
        PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    )
    with pytest.raises(UnsupportedError, match="llguidance cannot use the tokenizer"):
        process(Structured(regex="a"), [0.0] * 2, eos=[1], tokenizer=tokenizer)
