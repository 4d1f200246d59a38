"""Stop criteria, through pipelines over scripted models."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.stopping import (
    Eos,
    MaxLength,
    MaxNewTokens,
    StopStrings,
    StopTokenIds,
    TimeLimit,
    first_match,
)
from genkit.errors import InputError, OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel


class Words:
    """A tokenizer whose tokens are written out; ids are their places in the list."""

    bos_token_id = None

    def __init__(self, *words: str, special: frozenset[int] = frozenset()) -> None:
        self.words = words
        self.vocab_size = len(words)
        self.special_token_ids = special

    def decode(self, ids) -> str:
        return "".join(self.words[i] for i in ids if i not in self.special_token_ids)


def say(words: list[str], *criteria, eos=(), special=frozenset(), prompt=(0,), **options):
    """The result of a model that says these words, and the text streamed."""
    tokenizer = Words(*words, special=special)
    model = ScriptedModel.of_ids(
        range(len(words)), len(words), tokenizer=tokenizer, eos_token_ids=eos
    )
    criteria = (*criteria, MaxNewTokens(limit=len(words)))
    pipeline = Pipeline(model, stop_criteria=criteria, **options)
    result = pipeline.generate(list(prompt))
    pieces = [chunk.text for chunk in pipeline.stream(list(prompt))]
    assert "".join(pieces) == result.text
    return result, pieces


def test_several_eos_ids_and_its_report() -> None:
    result, _ = say(["a", "b", "c", "d"], Eos(), eos={2, 3})
    assert result.token_ids == [0, 1, 2]
    assert result.finish_reason == "stop"
    assert (result.stop.criterion, result.stop.matched, result.stop.position) == ("eos", 2, 2)


def test_the_end_token_gives_no_text_even_if_no_tokenizer_calls_it_special() -> None:
    assert say(["a", "b", "END"], Eos(), eos={2})[0].text == "ab"


def test_eos_of_the_recipe_replaces_the_models() -> None:
    assert say(["a", "b", "c"], Eos(token_ids=[1]), eos={0})[0].token_ids == [0, 1]


def test_no_eos_means_never() -> None:
    result, _ = say(["a", "b", "c"], Eos())
    assert result.finish_reason == "length" and result.token_ids == [0, 1, 2]


@pytest.mark.parametrize("bad", [-1, 4, 10**9])
@pytest.mark.parametrize("criterion", [Eos, StopTokenIds])
def test_ids_outside_the_vocabulary_are_refused_with_the_way_out(criterion, bad: int) -> None:
    with pytest.raises(InputError, match="leave the part out"):
        say(["a", "b", "c", "d"], criterion(token_ids=[bad]))


def test_stop_token_ids_keep_text_but_of_special_tokens() -> None:
    assert say(["a", "b", "c"], StopTokenIds(token_ids=[1]))[0].text == "ab"
    hidden, _ = say(["a", "<x>", "c"], StopTokenIds(token_ids=[1]), special=frozenset({1}))
    assert hidden.text == "a" and hidden.stop.criterion == "stop_token_ids"


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


@pytest.mark.parametrize("prompt_length", [1, 4, 5, 6])
def test_the_same_limit_whatever_the_prompt(prompt_length: int) -> None:
    """LEN-03, LEN-09: a limit counts tokens, nothing else."""
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[MaxNewTokens(limit=5)])
    assert len(pipeline.generate([0] * prompt_length).token_ids) == 5
    other = Pipeline(model, stop_criteria=[])
    assert len(other.generate([0] * prompt_length, max_new_tokens=5).token_ids) == 5


def test_max_length_counts_the_prompt_and_no_padding() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[MaxLength(limit=6)])
    results = pipeline.generate([[0], [0, 0, 0]])
    assert [len(result.token_ids) for result in results] == [5, 3]
    assert {result.finish_reason for result in results} == {"length"}


def test_contradictory_lengths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"max_new_tokens 9 .* max_length 9"):
        Pipeline(
            ScriptedModel.of_ids([1], 3), stop_criteria=[MaxNewTokens(limit=9), MaxLength(limit=9)]
        )
    with pytest.raises(UnsupportedError, match="max_new_tokens is given twice"):
        Pipeline(
            ScriptedModel.of_ids([1], 3),
            stop_criteria=[MaxNewTokens(limit=9), MaxNewTokens(limit=8)],
        )
    pipeline = Pipeline(ScriptedModel.of_ids([1], 3), stop_criteria=[MaxLength(limit=9)])
    with pytest.raises(UnsupportedError, match="max_new_tokens 50 can never"):
        pipeline.generate([0], max_new_tokens=50)


def test_time_limit() -> None:
    model = ScriptedModel.of_ids([1], 3)
    slow = [lambda state, logits: time.sleep(0.02) or logits]
    pipeline = Pipeline(model, processors=slow, stop_criteria=[TimeLimit(seconds=0.05)])
    result = pipeline.generate([0])
    assert result.finish_reason == "time" and 1 <= len(result.token_ids) <= 4


def test_the_time_counts_from_the_prefill_and_for_all_rows() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[TimeLimit(seconds=0.2), MaxNewTokens(limit=5)])
    steps = pipeline.decode([0])
    time.sleep(0.3)
    assert len(list(steps)) == 5

    model.supports = frozenset()  # so that rows run one after the other
    slow = [lambda state, logits: time.sleep(0.02) or logits]
    pipeline = Pipeline(model, processors=slow, stop_criteria=[TimeLimit(seconds=0.1)])
    results = pipeline.generate([[0], [0], [0]])
    assert [result.finish_reason for result in results] == ["time"] * 3
    assert [len(result.token_ids) for result in results[1:]] == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaxNewTokens(limit=0),
        lambda: MaxLength(limit=1),
        lambda: TimeLimit(seconds=0),
        lambda: StopTokenIds(token_ids=[]),
        lambda: Eos(token_ids=[]),
    ],
)
def test_options_out_of_range(make) -> None:
    with pytest.raises(OptionError):
        make()


def test_stop_strings_with_characters_of_several_tokens() -> None:
    tokenizer = ByteTokenizer()
    model = ScriptedModel.of_ids(tokenizer.encode("aé漢b"), 260, tokenizer=tokenizer)
    pipeline = Pipeline(model, stop_criteria=[StopStrings(strings=["漢"])])
    result = pipeline.generate([0], max_new_tokens=7)
    assert result.text == "aé" and result.num_generated_tokens == 6
