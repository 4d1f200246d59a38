"""DRY: by hand, from the definition, and in whole runs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genkit.components.base import LogitsProcessor
from genkit.components.breakers import breaker_sequences
from genkit.components.processors import Dry
from genkit.components.stopping import MaxNewTokens
from genkit.errors import InputError, OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, check_logits_processor
from journeys import MOST_IDS, follow, journeys, run_of
from saying import Words
from vectors import apply

INF = math.inf


def dry(**options) -> Dry:
    return Dry(**{"multiplier": 1.0, "base": 2.0, "breakers": (), **options})


def penalties(part: LogitsProcessor, ids, vocab_size: int = MOST_IDS, **facts) -> dict[int, float]:
    """What each token loses that loses something."""
    logits = torch.zeros(1, vocab_size, dtype=torch.float64)
    [found] = apply([part], logits, prompts=[list(ids)], generated=[[]], **facts).tolist()
    return {token_id: -value for token_id, value in enumerate(found) if value}


@pytest.mark.parametrize(
    "part",
    [
        dry(allowed_length=0),
        dry(allowed_length=1, window=4),
        dry(allowed_length=1, breaker_ids=[[1], [2, 3]]),
        Dry(multiplier=-0.5, allowed_length=1, breakers=["a"]),
    ],
    ids=repr,
)
def test_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=6)


# By hand.


@pytest.mark.parametrize(
    ("options", "ids", "expected"),
    [
        ({}, [0, 1, 2, 3, 0, 1], {2: 1}),
        ({}, [3, 0, 1, 2, 3, 0, 1], {2: 2}),
        ({}, [0, 1, 2, 0, 1, 3, 0, 1], {2: 1, 3: 1}),
        ({}, [4, 0, 1, 2, 0, 1, 3, 4, 0, 1], {2: 2, 3: 1}),
        ({}, [0, 1, 2, 3, 1], {}),  # one token is not enough
        ({"allowed_length": 1}, [0, 1, 2, 3, 1], {2: 1}),
        ({"allowed_length": 1}, [0, 1], {}),
        ({"allowed_length": 3}, [0, 1, 2, 3, 0, 1, 2], {3: 1}),
        ({}, [5, 5, 5], {5: 1}),
        ({}, [5, 5, 5, 5, 5, 5], {5: 8}),
        ({}, [1, 2, 1, 2, 1, 2], {1: 4}),
        ({"base": 1.0}, [5, 5, 5, 5, 5, 5], {5: 1}),
        ({"multiplier": -0.5}, [5, 5, 5, 5], {5: -1}),
        # Whatever came is continued by anything; but nothing stands before the first token.
        ({"allowed_length": 0}, [3, 1, 2], {1: 1, 2: 1}),
        ({"allowed_length": 0}, [3, 1, 3], {1: 2, 3: 1}),
        ({"allowed_length": 0}, [3], {}),
    ],
)
def test_what_continues_a_repetition_is_penalised(options, ids, expected) -> None:
    assert penalties(dry(**options), ids) == expected


@pytest.mark.parametrize(
    ("window", "expected"), [(6, {}), (7, {2: 1}), (8, {2: 2}), (9, {2: 4}), (99, {2: 4})]
)
def test_only_the_window_is_seen(window, expected) -> None:
    assert penalties(dry(window=window), [4, 3, 0, 1, 2, 4, 3, 0, 1]) == expected


@pytest.mark.parametrize(
    ("breakers", "expected"),
    [
        ([], {2: 4}),
        ([[5]], {2: 4}),
        ([[4]], {2: 2}),  # r is 3: the tokens after 4
        ([[3]], {2: 1}),
        ([[0]], {}),
        ([[2]], {}),  # it is a breaker itself
        ([[4, 3]], {2: 1}),
        ([[4], [4, 3]], {2: 1}),  # of those that begin at one place the longest
        ([[2, 5]], {2: 4}),
        ([[4, 3, 0]], {}),
        ([[4, 3, 0, 1, 2]], {2: 4}),  # it comes once, before the last four tokens
    ],
)
def test_repetitions_are_not_followed_across_breakers(breakers, expected) -> None:
    ids = [4, 3, 0, 1, 2, 4, 3, 0, 1]
    assert penalties(dry(breaker_ids=breakers), ids) == expected


def test_of_two_breakers_the_one_that_begins_last_counts() -> None:
    """It is so in llama.cpp, also where an earlier one ends later."""
    ids = [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert penalties(dry(breaker_ids=[[0, 1, 2]]), ids, 9) == {}
    assert penalties(dry(breaker_ids=[[0, 1, 2], [1]]), ids, 9) == {4: 1}


def test_the_power_stays_within_float32() -> None:
    found = penalties(dry(base=1000.0, allowed_length=1), [5, 0] * 30)
    assert found == {5: pytest.approx(1e36, rel=1e-6)}
    [row] = apply(
        [dry(multiplier=1e6)], torch.zeros(1, 6), prompts=[[5] * 400], generated=[[]]
    ).tolist()
    assert row[5] == pytest.approx(-3.4028235e38, rel=1e-6)


def test_forbidden_tokens_stay_forbidden_and_others_as_they_are() -> None:
    logits = torch.tensor([[1.0, -INF, -INF, 0.25, -0.0, 2.0]])
    found = apply([dry()], logits, prompts=[[0, 1, 2, 0, 1]], generated=[[]])
    assert torch.equal(found, logits)
    strided = torch.stack((logits, logits), 1)[:, 1]
    rows = {"prompts": [[0, 1, 3, 0, 1]], "generated": [[]]}
    assert apply([dry()], strided, **rows).tolist() == [[1.0, -INF, -INF, -0.75, 0.0, 2.0]]


# Breakers that are strings.


class Spelled(Words):
    """Texts are encoded letter by letter."""

    def token_text(self, token_id: int) -> str:
        return self.words[token_id]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [self.words.index(letter) if letter in self.words else 99 for letter in text]


SPELLED = Spelled("a", "b", "c", "ab", "xab", "aba", "xa", "abc")


@pytest.mark.parametrize(
    ("string", "sequences"),
    [
        ("b", {(1,), (3,), (4,), (5,), (7,)}),
        ("ab", {(3,), (4,), (5,), (7,), (0, 1), (6, 1)}),
        ("abc", {(7,), (0, 1, 2), (3, 2), (4, 2), (5, 1, 2), (6, 1, 2)}),
        ("xx", set()),
        ("a" * 30, {(i, *[0] * 20) for i in (0, 5, 6)}),
    ],
)
def test_a_string_stands_for_every_sequence_that_holds_it(string, sequences) -> None:
    assert breaker_sequences(SPELLED, [string]) == sequences


def test_strings_are_found_by_their_text() -> None:
    ids = [2, 6, 1, 0, 2, 6, 1, 0]  # c xa b a c xa b a
    for breakers, expected in [((), {2: 4}), (("ab",), {}), (("ca", "b"), {}), (("cc",), {2: 4})]:
        found = penalties(dry(breakers=breakers), ids, 8, tokenizer=SPELLED)
        assert found == expected, breakers
    assert penalties(dry(breakers=["ab"], allowed_length=1), ids, 8, tokenizer=SPELLED) == {2: 1}


def test_the_usual_breakers_keep_lists_as_they_are() -> None:
    """A list repeats its bullets; the default breakers are lines, colons, quotes and stars."""
    text = "* one\n* two\n* "
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    part = Dry(multiplier=1.0)
    assert penalties(part, ids, 260, tokenizer=tokenizer) == {}
    without = penalties(Dry(multiplier=1.0, breakers=[]), ids, 260, tokenizer=tokenizer)
    assert set(without) == set(tokenizer.encode("ot"))


# From the definition, whatever happens to the rows.


def by_definition(part: Dry, ids: list[int]) -> dict[int, float]:
    ids = ids if part.window is None else ids[-part.window :]
    limit = len(ids)
    for begin in reversed(range(len(ids))):
        here = [b for b in part.breaker_ids if tuple(ids[begin : begin + len(b)]) == b]
        if here:
            limit = len(ids) - begin - max(map(len, here))
            break
    longest: dict[int, int] = {}
    for place in range(1, len(ids)):
        lengths = range(min(place, limit) + 1)
        length = max(r for r in lengths if ids[place - r : place] == ids[len(ids) - r :])
        longest[ids[place]] = max(length, longest.get(ids[place], 0))
    most = int(88.7228391 / math.log(part.base)) if part.base > 1.000001 else 10**6
    return {
        token_id: part.multiplier * part.base ** min(r - part.allowed_length, most)
        for token_id, r in longest.items()
        if r >= part.allowed_length and (token_id,) not in part.breaker_ids
    }


_breakers = st.lists(st.lists(st.integers(0, MOST_IDS - 1), min_size=1, max_size=3), max_size=3)
_parts = st.builds(
    dry,
    base=st.sampled_from([1.0, 1.5, 2.0, 1e4, 2.0**60, 1.0000005]),
    allowed_length=st.integers(0, 3),
    window=st.none() | st.integers(1, 12),
    breaker_ids=_breakers,
)


@settings(max_examples=100)
@given(journeys(), _parts)
def test_every_penalty_is_what_it_is_defined_to_be(journey, part) -> None:
    if part.bind(run_of([0])) is None:
        assert part.window <= part.allowed_length
        return
    for bound, state, prompts, answers in follow(part.bind, journey):
        found = bound(state, torch.zeros(len(prompts), MOST_IDS, dtype=torch.float64))
        for row, prompt, answer in zip(found.tolist(), prompts, answers, strict=True):
            expected = by_definition(part, prompt + answer)
            losses = {token_id: -value for token_id, value in enumerate(row) if value}
            assert losses == pytest.approx(expected, rel=1e-5)


@settings(max_examples=60)
@given(
    st.sampled_from([1, 2, 3, 5]),
    st.integers(0, 2),
    st.integers(40, 200),
    st.none() | st.integers(20, 60),
    st.integers(1, 30),
)
def test_long_periodic_texts(period, allowed_length, size, window, change) -> None:
    """Longer than the longest context that counts, which is 8 here."""
    part = dry(base=2.0**15, allowed_length=allowed_length, window=window)
    ids = [i % period for i in range(size)]
    ids[-change] = 4
    found = penalties(part, ids)
    assert found == pytest.approx(by_definition(part, ids), rel=1e-5)


# Options.


@pytest.mark.parametrize("part", [dry(multiplier=0), dry(window=0), dry(window=2)], ids=repr)
def test_what_is_neutral_is_not_there(part: Dry) -> None:
    assert part.bind(run_of([1, 2])) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "multiplier: this option is required"),
        ({"multiplier": math.nan}, "multiplier: .*found nan"),
        ({"multiplier": 1, "base": 0.5}, "base: .*equal to 1, found 0.5"),
        ({"multiplier": 1, "allowed_length": -1}, "allowed_length: .*found -1"),
        ({"multiplier": 1, "window": -1}, "window: .*found -1"),
        ({"multiplier": 1, "breakers": ["a", ""]}, "breakers: an empty breaker"),
        ({"multiplier": 1, "breaker_ids": [[1], []]}, "breaker_ids: an empty breaker"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    with pytest.raises(OptionError, match=message):
        Dry(**options)


def test_strings_need_a_tokenizer() -> None:
    with pytest.raises(UnsupportedError, match=r"no tokenizer.*breakers: \[\]"):
        Dry(multiplier=1).bind(run_of([0]))


def test_breakers_are_ids_of_the_model() -> None:
    with pytest.raises(InputError, match="breaker_ids: 9 is no token id"):
        dry(breaker_ids=[[0, 9]]).bind(run_of([0]))


# In whole runs.


def test_a_model_that_goes_round_in_circles_gets_out() -> None:
    model = ScriptedModel.of_ids([1, 2, 3] * 10, MOST_IDS)
    stop = [MaxNewTokens(limit=30)]
    circles = Pipeline(model, stop_criteria=stop).generate([1, 2, 3]).token_ids
    assert circles == [1, 2, 3] * 10
    free = Pipeline(model, processors=[dry()], stop_criteria=stop).generate([1, 2, 3]).token_ids
    assert free[:3] == [1, 2, 3] and set(free) > {1, 2, 3}
