"""Every built-in stop criterion keeps the laws; each law catches one that breaks it."""

from typing import Literal

import pytest
import torch

from genkit.components.base import StopCriterion
from genkit.components.stopping import (
    Eos,
    LowConfidence,
    MaxLength,
    MaxNewTokens,
    Repeating,
    StopRegex,
    StopStrings,
    StopTokenIds,
    TimeLimit,
)
from genkit.core.contracts import name_of
from genkit.kit import Kit
from genkit.testing import ByteTokenizer, LawBroken, check_stop_criterion
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.stop_criterion import ENDS_BY_A_FAR_BOUND, STOP_CRITERION_LAWS

BUILT_IN = [
    Eos(),
    StopTokenIds(token_ids=(3, 5)),
    StopStrings(strings=("ab", "bca")),
    StopRegex(patterns=("a+b", r"bc\d"), longest=8),
    LowConfidence(patience=2),
    Repeating(max_period=2, times=2),
    MaxNewTokens(limit=3),
    MaxLength(limit=5),
    TimeLimit(seconds=3600),
]


def test_every_registered_criterion_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("stop_criterion")}
    assert {part.type for part in BUILT_IN} == registered


@pytest.mark.parametrize("part", BUILT_IN, ids=lambda part: part.type)
def test_built_in_criteria_keep_the_laws(part: StopCriterion) -> None:
    check_stop_criterion(part)


def test_with_the_string_kept_and_letters_of_several_tokens() -> None:
    check_stop_criterion(StopStrings(strings=("é", "aé漢"), include=True), max_examples=50)


def test_a_plain_callable_may_be_a_criterion() -> None:
    check_stop_criterion(lambda state: state.last_ids == 3, max_examples=50)


def looks_at_the_first_row(state):
    return (state.last_ids[0] == 3).expand(len(state))


def ends_where_the_nearest_row_is_full(state):
    return torch.full((len(state),), state.length >= state.nearest_end)


def ends_where_the_longest_row_is_full(state):
    return torch.full((len(state),), state.length >= state.max_length)


def marks_as_finished(state):
    state.finished |= state.last_ids == 3
    return state.finished


def counts_columns(state):
    return torch.full((len(state),), state.length >= 7)


def gives_ids(state):
    return state.last_ids


def raises(state):
    raise KeyError("oops")


def gives_a_bool(state):
    return True


class Bounded(StopCriterion):
    """Ends a row two tokens after its bound."""

    type: Literal["bounded"] = "bounded"

    def bound(self, num_prompt_tokens):
        return num_prompt_tokens + 3

    def __call__(self, state):
        return state.num_generated >= 5


class FarBounded(Bounded):
    """Ends a row two tokens after a bound that is far off."""

    def bound(self, num_prompt_tokens):
        return num_prompt_tokens + 400

    def __call__(self, state):
        return state.num_generated >= 402


class LooselyBounded(FarBounded):
    """Ends a row long before its bound, which is sound."""

    def __call__(self, state):
        return state.num_generated >= 3


class Fraction(Bounded):
    """Its bound is no whole number."""

    def bound(self, num_prompt_tokens):
        return num_prompt_tokens + 0.5


class Matches(StopCriterion):
    """The base of some that end a row at the letter a, and say so wrongly."""

    type: Literal["matches"] = "matches"

    def bind(self, run):
        return self.Bound()

    class Bound:
        def __call__(self, state):
            return state.last_ids == ord("a")

        def reorder(self, indices):
            pass


class ReportsAnotherPlace(Matches):
    class Bound(Matches.Bound):
        def report(self, state, i):
            return {"matched": ord("a"), "position": len(state.generated_row(i))}


class ReportsAnotherKey(Matches):
    class Bound(Matches.Bound):
        def report(self, state, i):
            return {"where": 0}


class CutsBeyondTheText(Matches):
    class Bound(Matches.Bound):
        def report(self, state, i):
            return {"text_end": 1 + len(state.generated_row(i)) * 3}


class CutsWhatWasShown(Matches):
    class Bound(Matches.Bound):
        def report(self, state, i):
            return {"text_end": 0}


class HoldsBackTooMuch(Matches):
    class Bound(Matches.Bound):
        def held_back(self, text):
            return len(text) + 1


class SharedRow(StopCriterion):
    """Remembers the last id of each row by its place."""

    type: Literal["shared_row"] = "shared_row"

    def bind(self, run):
        return self.Bound(len(run))

    class Bound:
        def __init__(self, size):
            self.before = torch.full((size,), -1)

        def __call__(self, state):
            before, self.before = self.before[: len(state)], state.last_ids
            return before == state.last_ids

        def reorder(self, indices):
            pass


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        (looks_at_the_first_row, "does not depend on company"),
        (ends_where_the_nearest_row_is_full, "does not depend on company"),
        (ends_where_the_longest_row_is_full, "does not depend on company"),
        (marks_as_finished, "leaves what it is given"),
        (counts_columns, "does not depend on padding"),
        (gives_ids, "gives one mark a row"),
        (gives_a_bool, "gives one mark a row"),
        (Bounded(), "ends by its bound"),
        (FarBounded(), "ends by its bound"),
        (raises, "runs without an error"),
        (Fraction(), "ends by its bound"),
        (ReportsAnotherPlace(), "reports what is there"),
        (ReportsAnotherKey(), "reports what is there"),
        (CutsBeyondTheText(), "reports what is there"),
        (CutsWhatWasShown(), "shows nothing that it cuts"),
        (HoldsBackTooMuch(), "holds back what there is"),
        (SharedRow(), "follows rows that leave"),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_broken_criterion_is_caught_by_its_law(part, broken: str) -> None:
    on_text = isinstance(part, Matches)
    with pytest.raises(LawBroken) as caught:
        check_stop_criterion(part, tokenizer=ByteTokenizer() if on_text else None)
    assert caught.value.law == broken


def test_the_message_says_how_far_a_row_went() -> None:
    with pytest.raises(LawBroken, match="is 40[0-9], and a row .* goes on beyond 40[0-9] tokens"):
        check_stop_criterion(FarBounded(), max_examples=1)


def test_a_far_bound_that_holds_is_walked_to() -> None:
    check_stop_criterion(MaxNewTokens(limit=3000), max_examples=1)


def test_a_bound_may_be_more_than_is_ever_reached() -> None:
    check_stop_criterion(LooselyBounded(), max_examples=1)


def test_the_laws_that_were_tried_are_returned() -> None:
    assert check_stop_criterion(Eos(), max_examples=1) == list(STOP_CRITERION_LAWS)


def test_a_class_is_refused_before_any_law() -> None:
    with pytest.raises(TypeError, match=r"^MaxLength is a class; give an object: MaxLength\(\)"):
        check_stop_criterion(MaxLength)


def test_a_bound_further_off_than_can_be_tried_is_believed() -> None:
    history = History((Row((0,), (1,), torch.zeros(1, 4)),))
    for law in (*STOP_CRITERION_LAWS, ENDS_BY_A_FAR_BOUND):
        law(MaxNewTokens(limit=10**6), history)
