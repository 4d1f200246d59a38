"""Text, one id at a time: never half a character, no blank lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from genkit.testing import ByteTokenizer
from genkit.text.stream import Detokenizer, detokenize


def pieces(tokenizer, ids) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(i) for i in ids), stream.flush()]


def joined(tokenizer, ids) -> str:
    text = "".join(pieces(tokenizer, ids))
    assert text == detokenize(tokenizer, ids)
    return text


class Library:
    """A tokenizer of the library of that name, with its decoder."""

    def __init__(self, vocabulary: list[str], decoder) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(vocabulary)}, "?"))
        self.tokenizer.decoder = decoder
        self.special_token_ids = frozenset([0])

    def ids(self, *tokens: str) -> list[int]:
        return [self.vocabulary.index(token) for token in tokens]

    def decode(self, ids) -> str:
        return self.tokenizer.decode([i for i in ids if i != 0], skip_special_tokens=False)


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
METASPACE = Library(["<s>", "▁Hello", "▁world", "!", "▁", "lo", *BYTE_TOKENS],
    decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                       decoders.Strip(" ", 1, 0)]))  # fmt: skip


def bytes_of(text: str | bytes) -> list[int]:
    data = text.encode() if isinstance(text, str) else text
    return METASPACE.ids(*(BYTE_TOKENS[byte] for byte in data))


def test_characters_of_several_tokens() -> None:
    """STREAM-01."""
    text = "aé漢🙂z"
    out = pieces(ByteTokenizer(), text.encode())
    assert "".join(out) == text
    assert not any("\ufffd" in piece for piece in out)
    assert [piece for piece in out if piece] == list(text)


def test_bytes_that_are_no_text_come_out_and_hold_nothing_back() -> None:
    """STREAM-02."""
    out = pieces(ByteTokenizer(), [0xFF, ord("a"), 0xE2, 0x28, ord("b")])
    assert "".join(out) == "\ufffda\ufffd(b"
    assert out[1] == "\ufffda" and out[3] == "\ufffd("


def test_a_text_that_ends_in_the_middle_of_a_character() -> None:
    assert pieces(ByteTokenizer(), "é".encode()[:1])[-1] == "\ufffd"
    assert joined(ByteTokenizer(), b"a" + "🙂".encode()[:3]) == "a\ufffd"


def test_a_long_run_of_bad_bytes_is_given_out_as_it_comes() -> None:
    out = pieces(ByteTokenizer(), [0xFF] * 50)
    assert "".join(out) == "\ufffd" * 50
    assert "".join(out[:40]).count("\ufffd") >= 36


def test_a_token_with_a_blank_and_half_a_character() -> None:
    """STREAM-04."""

    class Halves:
        special_token_ids = frozenset()

        def decode(self, ids) -> str:
            parts = [b" \xf0", b"\x9f\x99\x82"]
            return b"".join(parts[i] for i in ids).decode(errors="replace")

    assert pieces(Halves(), [0, 1]) == [" ", "🙂", ""]


def test_blanks_at_the_borders_of_tokens() -> None:
    """STREAM-06, STREAM-07: all ids decoded at once give the same."""
    ids = METASPACE.ids("▁Hello", "▁world", "!", "▁", "▁", "▁Hello", "lo")
    assert joined(METASPACE, ids) == METASPACE.decode(ids) == "Hello world!   Hellolo"
    assert pieces(METASPACE, ids)[1] == " world"


def test_special_ids_give_no_text_and_take_no_blank_away() -> None:
    ids = METASPACE.ids("▁Hello", "<s>", "▁world", "<s>", "<s>", "▁Hello")
    assert joined(METASPACE, ids) == "Hello world Hello"


def test_byte_tokens_make_characters() -> None:
    ids = [*METASPACE.ids("▁Hello", "▁"), *bytes_of("漢🙂"), *METASPACE.ids("!")]
    out = pieces(METASPACE, ids)
    assert "".join(out) == METASPACE.decode(ids) == "Hello 漢🙂!"
    assert not any("\ufffd" in piece for piece in out)


def test_a_complete_character_survives_bad_bytes_after_it() -> None:
    """The library spoils the whole run of byte tokens; what has been shown must stand."""
    ids = [*METASPACE.ids("▁Hello"), *bytes_of("漢".encode() + b"\xff"), *METASPACE.ids("!")]
    text = joined(METASPACE, ids)
    assert text.startswith("Hello漢") and text.endswith("!")


def test_a_blank_that_is_a_byte_does_not_hide_what_stands_before_it() -> None:
    """Alone such a blank decodes to nothing, where the decoder strips the first one."""
    ids = bytes_of("a 🏽")
    assert joined(METASPACE, ids) == METASPACE.decode(ids) == "a 🏽"
    ids = [*METASPACE.ids("▁Hello"), *bytes_of(" "), *bytes_of(" "), *bytes_of("é"), *bytes_of(" ")]
    assert joined(METASPACE, ids) == METASPACE.decode(ids)


_metaspace_ids = st.lists(
    st.one_of(
        st.sampled_from(["▁Hello", "▁world", "!", "▁", "lo", "<s>"]).map(
            lambda token: METASPACE.ids(token)
        ),
        st.sampled_from(["é", "漢", "🙂", "a", " ", "  "]).map(bytes_of),
    ),
    max_size=12,
).map(lambda parts: [i for part in parts for i in part])


@given(_metaspace_ids)
def test_streamed_equals_whole_over_blanks_and_byte_tokens(ids: list[int]) -> None:
    assert "".join(pieces(METASPACE, ids)) == METASPACE.decode(ids)


@given(st.lists(st.integers(0, 259), max_size=40))
def test_streamed_equals_whole_over_any_bytes(ids: list[int]) -> None:
    assert joined(ByteTokenizer(), ids) == ByteTokenizer().decode(ids)


@given(st.lists(st.integers(0, len(METASPACE.vocabulary) - 1), max_size=20))
def test_no_character_is_lost_whatever_the_ids(ids: list[int]) -> None:
    """Where bytes are no text, only U+FFFD may differ from what the library makes of the whole."""
    text, whole = joined(METASPACE, ids), METASPACE.decode(ids)
    if "\ufffd" not in whole:
        assert text == whole


@pytest.mark.parametrize("count", [200, 2000])
def test_the_cost_of_an_id_does_not_grow(count: int) -> None:
    """Counted, not timed: how many ids are decoded for each id pushed."""

    class Counting(ByteTokenizer):
        decoded = 0

        def decode(self, ids) -> str:
            Counting.decoded += len(ids)
            return super().decode(ids)

    Counting.decoded = 0
    pieces(Counting(), b"word and " * (count // 9))
    assert Counting.decoded < 6 * count


def test_a_copy_goes_its_own_way() -> None:
    stream = Detokenizer(ByteTokenizer())
    first = "é".encode()
    stream.push(first[0])
    copy = stream.copy()
    assert stream.push(first[1]) == "é"
    assert copy.push(ord("x")) == "\ufffdx"
