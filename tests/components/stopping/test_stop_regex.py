"""Regular expressions that end a row."""

import itertools
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from genkit.components.stopping import MaxNewTokens, StopRegex, stop_regex
from genkit.components.stopping.row_text import TextEnd
from genkit.core.run import Run
from genkit.errors import OptionError, PartError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, check_stop_criterion
from saying import say


@pytest.mark.parametrize(
    ("words", "patterns", "text", "matched"),
    [
        (["x", "12", "3 ", "y"], r"\d+ ", "x", "123 "),
        (["x12", "3 y"], r"\d", "x", "1"),
        (["aE", "nD!", "b"], r"(?i)end", "a", "EnD"),
        (["a\n", "\n", "b"], r"\n{2,}", "a", "\n\n"),
        (["one\nUs", "er: hi", "!\n", "b"], r"\n\s*User:", "one", "\nUser:"),
        (["### a", "\n##", "#b"], r"(?m)^###", "", "###"),
        (["a ### a", "\n##", "#b"], r"(?m)^###", "a ### a\n", "###"),
        (["x###", "###"], r"\A###", None, None),
        (["é", "漢字", "x"], r"\p{Han}", "é", "漢"),
        (["abab", "ab", "c"], r"(ab)\1\1", "", "ababab"),
        (["foo", "ba", "r!"], r"foo(?=bar)", "", "foo"),
        (["xfoo", " foo"], r"(?<=x)foo|never", "x", "foo"),
        (["xfoo", " foo"], r"(?<!x)foo", "xfoo ", "foo"),
        (["b", "ac"], ["c", "ac", "bac"], "", "bac"),
        (["aX", "b"], ["Xb", "X"], "a", "X"),
        (["a", "b"], "no", None, None),
    ],
)
def test_where_a_text_ends(words, patterns, text, matched) -> None:
    """The text before the match is kept, however the match falls into tokens."""
    result, _ = say(words, StopRegex(patterns=patterns))
    if text is None:
        assert result.finish_reason == "length" and result.text == "".join(words)
        return
    assert result.text == text
    assert (result.stop.matched, result.stop.position) == (matched, len(text))
    assert result.stop.criterion == "stop_regex"
    with_match, _ = say(words, StopRegex(patterns=patterns, include=True))
    assert with_match.text == text + matched


def test_the_prompt_does_not_count() -> None:
    result, _ = say(["ab", "c"], StopRegex(patterns=["abab"]), prompt=(0, 0))
    assert result.text == "abc"


def test_letters_are_held_back_only_while_they_may_belong_to_a_match() -> None:
    words = ["a1", "2", "x", "3", "4", "."]
    _, pieces = say(words, StopRegex(patterns=r"\d+\."))
    assert pieces == ["a", "12x", ""]


def test_where_a_pattern_looks_behind_the_stream_stays_behind() -> None:
    words = [*"a word and more", "END"]
    _, pieces = say(words, StopRegex(patterns=r"\bEND", longest=4))
    assert "".join(pieces) == "a word and moreEND"  # no boundary before END
    assert pieces[:2] == ["a", " "] and pieces[-1] == "oreEND"


def test_no_match_is_longer_than_asked_for() -> None:
    words = list("<aaaa>b<aa>c")
    assert say(words, StopRegex(patterns="<a*>", longest=5))[0].text == "<aaaa>b"
    assert say(words, StopRegex(patterns="<a*>", longest=6))[0].text == ""


def test_what_is_kept_of_a_text_is_bounded() -> None:
    criterion = StopRegex(patterns="x.*y", longest=10)
    bound = criterion.bind(_run())
    ends = [bound.texts[0].push(ord("x")) for _ in range(500)]
    assert max(len(end.text) for end in ends) == 21
    assert [end.offset + len(end.text) for end in ends] == list(range(1, 501))


def test_matches_that_come_too_early_end_nothing() -> None:
    words = ["1", "a", "2", "b"]
    assert say(words, StopRegex(patterns=r"\d", min_new_tokens=1))[0].text == "1a"
    assert say(words, StopRegex(patterns=r"\d", min_new_tokens=3))[0].text == "1a2b"
    assert say(words, StopRegex(patterns=r"\da", min_new_tokens=1))[0].text == ""


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a("], "no regular expression"),
        ("a*", "matches the empty text"),
        ("$", "matches the empty text"),
        ([""], "matches the empty text"),
        ([], "at least 1 is needed"),
        ([None], "patterns"),
    ],
)
def test_bad_patterns_are_refused_by_name(patterns, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StopRegex(patterns=patterns)


def test_it_needs_a_tokenizer() -> None:
    model = ScriptedModel.of_ids([1], 3)
    pipeline = Pipeline(model, stop_criteria=[StopRegex(patterns="x"), MaxNewTokens(limit=1)])
    with pytest.raises(UnsupportedError, match="'stop_regex' reads text.*no tokenizer"):
        pipeline.generate([0])
    assert model.num_calls == 0


def _run() -> Run:
    return Run(((0,),), (0,), (0,), (99,), (0,), vocab_size=260, tokenizer=ByteTokenizer())


_LETTERS = st.sampled_from(["a", "b", "c", "[ab]", "[^a]", "."])
_NOTHING_WIDE = ["^", r"\A", "(?m)^", "$", r"\b", "(?<=a)", "(?<!b)"]
_MANY = ["*", "+", "?", "{2}", "{1,2}", "*?", "+?", "*+", "?+", "{e<=1}"]
_PATTERNS = st.recursive(
    _LETTERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(_MANY)).map("(?:{0[0]}){0[1]}".format),
        st.tuples(inner, inner).map(r"({0[0]}){0[1]}\1".format),
        st.tuples(st.sampled_from(["?=", "?!", "?>"]), inner, inner).map(
            "({0[0]}{0[1]}){0[2]}".format
        ),
        st.tuples(st.sampled_from(_NOTHING_WIDE), inner).map("".join),
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.integers(1, 8), st.text("aabbc\n", min_size=1, max_size=14), st.data())
@example("(?!^[^a])(?:b)+?(?:(?:[ab]|b)|..)", 2, "aba", None)
@example("(?>^a|)abc", 4, "xabc", None)
def test_where_a_text_ends_does_not_depend_on_tokens_and_is_never_shown(
    pattern: str, longest: int, text: str, data
) -> None:
    try:
        bound = StopRegex(patterns=pattern, longest=longest).bind(_run())
    except OptionError:
        return  # it matches the empty text
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text))))) if data else []
    in_letters = _first_match(bound, text, range(len(text)))
    assert in_letters == _first_match(bound, text, cuts)
    shown = 0
    for size in range(len(text) if in_letters is None else in_letters[0]):
        held = bound.held_back(text[shown:size])
        assert 0 <= held <= size - shown
        shown = size - held
    if in_letters is not None:
        assert shown <= in_letters[1]


def _first_match(bound, text: str, cuts):
    """The end of the shortest text that has a match, where it begins, and what it is."""
    for begin, end in itertools.pairwise(sorted({0, *cuts, len(text)})):
        offset = max(0, begin - 2 * bound.longest)
        match = bound.find(TextEnd(text[offset:end], offset, begin - offset))
        if match is not None:
            place, string = offset + match[0], match[1]
            sizes = range(begin + 1, end + 1)
            size = next(
                size
                for size in sizes
                if bound.find(TextEnd(text[offset:size], offset, begin - offset))
            )
            return size, place, string
    return None


@given(st.text("ab1\n", min_size=1, max_size=20))
def test_it_agrees_with_re(text: str) -> None:
    """Letter by letter, for a pattern that both know."""
    pattern = r"a+\d|\n\n"
    result, _ = say(list(text), StopRegex(patterns=pattern))
    sizes = range(1, len(text) + 1)
    found = (re.search(pattern, text[:size]) for size in sizes)
    first = next((match for match in found if match), None)
    assert result.text == (text if first is None else text[: first.start()])


@pytest.mark.parametrize(
    "part",
    [
        StopRegex(patterns=["a+b", r"c\d"], longest=6),
        StopRegex(patterns=r"(?<=a)b+c", include=True),
        StopRegex(patterns="漢|é+x", min_new_tokens=2),
    ],
    ids=repr,
)
def test_the_laws(part: StopRegex) -> None:
    check_stop_criterion(part, max_examples=25)


@pytest.mark.parametrize("pattern", ["a{1000000000}", "b|(ab){2,20000}", "a{99999999999999999999}"])
def test_a_repeat_that_takes_all_memory_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="above 10,000 times"):
        StopRegex(patterns=[pattern])


def test_a_search_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_regex, "_SECONDS", 0.05)
    script = torch.zeros(1, 260)
    script[0, ord("a")] = 50
    criteria = [StopRegex(patterns=["(a|aa)+b"]), MaxNewTokens(limit=60)]
    model = ScriptedModel(script, tokenizer=ByteTokenizer())
    with pytest.raises(PartError, match=r"'\(a\|aa\)\+b' took more than .* seconds") as info:
        Pipeline(model, stop_criteria=criteria).generate("x")
    assert set(info.value.partial_results[0].text) == {"a"}
