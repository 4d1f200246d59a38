"""Strings that end a row, through pipelines over scripted models."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.stopping import MaxNewTokens, StopStrings, first_match
from genkit.errors import OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, check_stop_criterion
from saying import Words, say


@pytest.mark.parametrize(
    ("words", "strings", "text", "include"),
    [
        (["xE", "NDy", "z"], ["END"], "x", "xEND"),
        (["?\n", "more"], ["\n"], "?", "?\n"),
        (list("A B C D E F G"), ["D E F"], "A B C ", "A B C D E F"),
        (["}}", "x"], ["}"], "", "}"),
        ([" }", "x"], ["}"], " ", " }"),
        (["}", "}", "x"], ["}}"], "", "}}"),
        (["a.", "b!"], ["."], "a", "a."),
        (["a", "b!"], [".", "!"], "ab", "ab!"),
        (["aXb", "c"], ["Xbc", "X"], "a", "aX"),
        (["abc", "d"], ["bc", "abc"], "", "abc"),
    ],
)
def test_stop_strings(words, strings, text: str, include: str) -> None:
    """STOP-01, 02, 03, 06, 07: on text, across tokens, the text before the string kept."""
    result, pieces = say(words, StopStrings(strings=strings))
    assert result.text == text
    assert result.finish_reason == "stop"
    assert result.stop.matched in strings
    assert result.stop.position == len(text)
    assert not any("E" in piece for piece in pieces if "END" in strings)
    assert say(words, StopStrings(strings=strings, include=True))[0].text == include


def test_a_string_that_does_not_come_holds_nothing_back_for_ever() -> None:
    result, pieces = say(["x", "EN", "T", "END"[:2]], StopStrings(strings=["END"]))
    assert result.text == "xENTEN" and result.finish_reason == "length"
    assert pieces == ["x", "ENT", "EN"]


def test_a_stop_longer_than_the_text() -> None:
    assert say(["ab", "c"], StopStrings(strings=["abcd" * 50]))[0].text == "abc"


def test_the_prompt_does_not_count() -> None:
    """STOP-09: neither a whole string in it nor its beginning."""
    words = ["EN", "D", "x"]
    tokenizer = Words(*words)
    model = ScriptedModel.of_ids([1, 2], 3, tokenizer=tokenizer)
    pipeline = Pipeline(model, stop_criteria=[StopStrings(strings=["END", "EN"])])
    assert pipeline.generate([0], max_new_tokens=2).text == "Dx"


@given(
    st.text("abc", min_size=1, max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3),
    st.data(),
)
def test_where_text_stops_does_not_depend_on_its_tokens(text: str, strings, data) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(text) - 1))))
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    words = [text[a:b] for a, b in itertools.pairwise(edges)]
    criterion = StopStrings(strings=strings)
    in_tokens, _ = say(words, criterion)
    in_letters, _ = say(list(text), criterion)
    assert in_tokens.text == in_letters.text
    match = first_match(text, strings)
    assert in_tokens.text == (text if match is None else text[: match[0]])


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        ([None], "strings"),
        ([""], "empty string"),
        ([], "at least 1 is needed, found an empty list"),
        ([1], "strings"),
        (None, "strings"),
    ],
)
def test_bad_stop_strings_are_refused_by_name(strings, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StopStrings(strings=strings)


def test_a_bare_string_is_one_stop() -> None:
    assert StopStrings(strings="abc").strings == ("abc",)
    assert StopStrings(strings=("a",)).strings == ("a",)


def test_stop_strings_need_a_tokenizer() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[StopStrings(strings=["x"]), MaxNewTokens(limit=1)])
    with pytest.raises(UnsupportedError, match="no tokenizer"):
        pipeline.generate([0])
    assert model.num_calls == 0


def test_stop_strings_with_characters_of_several_tokens() -> None:
    tokenizer = ByteTokenizer()
    model = ScriptedModel.of_ids(tokenizer.encode("aé漢b"), 260, tokenizer=tokenizer)
    pipeline = Pipeline(model, stop_criteria=[StopStrings(strings=["漢"])])
    result = pipeline.generate([0], max_new_tokens=7)
    assert result.text == "aé" and result.num_generated_tokens == 6


@pytest.mark.parametrize(
    ("min_new_tokens", "text"), [(0, "a"), (1, "a"), (2, "aENDxa"), (4, "aENDxa"), (5, None)]
)
def test_strings_that_come_too_early_end_nothing(min_new_tokens: int, text: str | None) -> None:
    """The second and the fifth token complete one, and the longer string reaches back to both."""
    words = ["a", "END", "xa", "EN", "D"]
    criterion = StopStrings(strings=("END", "something longer"), min_new_tokens=min_new_tokens)
    result, _ = say(words, criterion)
    assert result.text == ("aENDxaEND" if text is None else text)
    assert result.finish_reason == ("length" if text is None else "stop")


def test_the_laws_with_a_minimum() -> None:
    criterion = StopStrings(strings=("ab", "bca"), min_new_tokens=2)
    check_stop_criterion(criterion, max_examples=30)
