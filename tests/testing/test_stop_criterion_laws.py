"""Every built-in stop criterion keeps the laws; each law catches one that breaks it."""

from typing import Literal

import pytest
import torch

from genkit.components.base import StopCriterion
from genkit.components.stopping import (
    Eos,
    MaxLength,
    MaxNewTokens,
    StopStrings,
    StopTokenIds,
    TimeLimit,
)
from genkit.core.contracts import name_of
from genkit.kit import Kit
from genkit.testing import ByteTokenizer, LawBroken, check_stop_criterion
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.stop_criterion import STOP_CRITERION_LAWS

BUILT_IN = [
    Eos(),
    StopTokenIds(token_ids=(3, 5)),
    StopStrings(strings=("ab", "bca")),
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


def marks_as_finished(state):
    state.finished |= state.last_ids == 3
    return state.finished


def counts_columns(state):
    return torch.full((len(state),), state.length >= 7)


def gives_ids(state):
    return state.last_ids


def gives_a_bool(state):
    return True


class Bounded(StopCriterion):
    """Ends a row two tokens after its bound."""

    type: Literal["bounded"] = "bounded"

    def bound(self, num_prompt_tokens):
        return num_prompt_tokens + 3

    def __call__(self, state):
        return state.num_generated >= 5


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
        (looks_at_the_first_row, "does_not_depend_on_company"),
        (marks_as_finished, "leaves_what_it_is_given"),
        (counts_columns, "does_not_depend_on_padding"),
        (gives_ids, "gives_one_mark_a_row"),
        (gives_a_bool, "gives_one_mark_a_row"),
        (Bounded(), "ends_by_its_bound"),
        (Fraction(), "ends_by_its_bound"),
        (ReportsAnotherPlace(), "reports_what_is_there"),
        (ReportsAnotherKey(), "reports_what_is_there"),
        (CutsBeyondTheText(), "reports_what_is_there"),
        (CutsWhatWasShown(), "shows_nothing_that_it_cuts"),
        (HoldsBackTooMuch(), "holds_back_what_there_is"),
        (SharedRow(), "follows_rows_that_leave"),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_broken_criterion_is_caught_by_its_law(part, broken: str) -> None:
    on_text = isinstance(part, Matches)
    with pytest.raises(LawBroken) as caught:
        check_stop_criterion(part, tokenizer=ByteTokenizer() if on_text else None)
    assert caught.value.law == broken


def test_a_bound_further_off_than_can_be_tried_is_believed() -> None:
    history = History((Row((0,), (1,), torch.zeros(1, 4)),))
    for law in STOP_CRITERION_LAWS:
        law(MaxNewTokens(limit=10**6), history)
