"""The end of a text, token by token."""

from genkit.components.stopping.row_text import RowText
from genkit.testing import ByteTokenizer
from genkit.text.stream import Detokenizer


def pushed(row: RowText, text: str) -> list[tuple[str, int, int]]:
    ends = [row.push(token_id) for token_id in text.encode()]
    return [(end.text, end.offset, end.num_old) for end in ends]


def test_as_much_as_is_asked_for_stands_before_the_new_text() -> None:
    row = RowText(Detokenizer(ByteTokenizer()), 2)
    assert pushed(row, "abcd") == [("a", 0, 0), ("ab", 0, 1), ("abc", 0, 2), ("bcd", 1, 2)]
    row = RowText(Detokenizer(ByteTokenizer()), 0)
    assert pushed(row, "ab") == [("a", 0, 0), ("b", 1, 0)]


def test_half_a_character_is_no_text() -> None:
    row = RowText(Detokenizer(ByteTokenizer()), 9)
    assert pushed(row, "éa") == [("", 0, 0), ("é", 0, 0), ("éa", 0, 1)]


def test_tokens_are_taken_back_and_copies_are_apart() -> None:
    row = RowText(Detokenizer(ByteTokenizer()), 2)
    pushed(row, "abc")
    row.push("é".encode()[0])
    twin = row.copy()
    assert row.push("é".encode()[1]).text == "bcé"
    row.rewind(2)  # the whole of é
    assert pushed(row, "x") == [("bcx", 1, 2)]
    assert twin.push("é".encode()[1]).text == "bcé"
    twin.rewind(5)
    assert pushed(twin, "yz") == [("y", 0, 0), ("yz", 0, 1)]


def test_what_ends_too_early_is_told_apart() -> None:
    row = RowText(Detokenizer(ByteTokenizer()), 2, num_ignored=3)
    found = [row.push(token_id).num_ignored for token_id in b"abcdefg"]
    assert found == [1, 2, 3, 2, 1, 0, 0]
