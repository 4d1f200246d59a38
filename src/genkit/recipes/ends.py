"""Stop criteria that can never matter, and answers that cannot end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from genkit.recipes.disputes import named_ends
from genkit.recipes.groups import may_come_back
from genkit.recipes.recipe import Recipe

_Found = Iterator[str]


def end_warnings(recipe: Recipe) -> _Found:
    """A sentence for each of them, with the reason."""
    yield from _least_and_most(recipe)
    yield from _too_late(recipe)
    yield from _twice(recipe.stop_criteria)
    yield from _longer_strings(recipe.stop_criteria)
    yield from _no_end(recipe)


def _least_and_most(recipe: Recipe) -> _Found:
    """A least length that the greatest leaves no room after, for the end tokens it forbids."""
    for least, most, num_prompt_tokens in (
        ("min_new_tokens", "max_new_tokens", 0),
        ("min_new_tokens", "max_length", 1),  # the shortest prompt has a token, which counts
        ("min_length", "max_length", 0),
    ):
        end = _least_limit(recipe.stop_criteria, most)
        for i, part in _of_type(recipe.processors, least):
            is_barred = _forbids_ends(part, recipe.stop_criteria) and not may_come_back(recipe, i)
            if is_barred and part.limit >= end - num_prompt_tokens:
                yield (
                    f"processors.{i} ({least}) forbids the end until {part.limit} tokens, and "
                    f"{most} ends the answer at {end}: no answer ends at an end token."
                )


def _forbids_ends(part: Any, stop_criteria: Sequence[Any]) -> bool:
    """Whether answers would end at end tokens, and all of these are forbidden."""
    criteria = [each for _, each in _of_type(stop_criteria, "eos")]
    return bool(criteria) and all(
        each.token_ids is None or set(each.token_ids) <= set(part.token_ids) for each in criteria
    )


def _too_late(recipe: Recipe) -> _Found:
    """Strings and patterns that count only after the answer has ended."""
    most = _least_limit(recipe.stop_criteria, "max_new_tokens")
    for i, criterion in enumerate(recipe.stop_criteria):
        begins = getattr(criterion, "min_new_tokens", 0)
        if begins >= most:
            yield (
                f"stop_criteria.{i} ({criterion.type}) does nothing: it counts after {begins} "
                f"tokens, and max_new_tokens ends the answer at {most}."
            )


def _least_limit(stop_criteria: Sequence[Any], type: str) -> float:
    return min((part.limit for _, part in _of_type(stop_criteria, type)), default=math.inf)


def _of_type(parts: Sequence[Any], type: str) -> Iterator[tuple[int, Any]]:
    """The parts of a type, each with its place."""
    return ((i, part) for i, part in enumerate(parts) if part.type == type)


def _twice(criteria: Sequence[Any]) -> _Found:
    for (i, first), (j, second) in combinations(enumerate(criteria), 2):
        if _covers(first, second):
            yield _idle(j, second, i, first)
        elif first.type == second.type == "time_limit":
            yield _idle(i, first, j, second)
        elif first.type == second.type == "eos" and None in (first.token_ids, second.token_ids):
            yield (
                f"stop_criteria.{i} and stop_criteria.{j} are both eos: the model's own end tokens "
                "end answers too, and token_ids do not stand in their place."
            )


def _idle(i: int, idle: Any, j: int, other: Any) -> str:
    return (
        f"stop_criteria.{i} ({idle.type}) does nothing: stop_criteria.{j} ({other.type}) ends all "
        "answers that it would end."
    )


def _covers(first: Any, second: Any) -> bool:
    """Whether the first of two criteria ends an answer whenever the second would.

    Where both are met with the same token the first is named, and cuts the text.
    """
    if first == second:
        return True
    ends, more_ends = named_ends(first), named_ends(second)
    if ends is not None and more_ends is not None:
        return set(more_ends) <= set(ends)
    if first.type != second.type:
        return False
    match first.type:
        case "time_limit":
            return bool(first.seconds <= second.seconds)
        case "low_confidence":
            is_surer = first.threshold >= second.threshold
            return bool(is_surer and first.patience <= second.patience)
        case "repeating":
            is_longer = first.min_period <= second.min_period <= second.max_period
            is_longer = is_longer and second.max_period <= first.max_period
            return bool(is_longer and first.times <= second.times)
        case "stop_strings":
            return all(
                any(_comes_first(string, first, other, second) for string in first.strings)
                for other in second.strings
            )
        case "stop_regex":
            is_same = first.longest == second.longest
            is_sooner = first.min_new_tokens <= second.min_new_tokens
            return bool(is_same and is_sooner and set(second.patterns) <= set(first.patterns))
    return False


def _comes_first(string: str, criterion: Any, other: str, its: Any) -> bool:
    """Whether a string of a criterion has ended the answer when another, of `its`, is complete."""
    if other.endswith(string):
        return bool(criterion.min_new_tokens <= its.min_new_tokens)
    return string in other and criterion.min_new_tokens == 0


def _longer_strings(criteria: Sequence[Any]) -> _Found:
    """Strings that hold another of their list, which is complete before them."""
    for i, criterion in _of_type(criteria, "stop_strings"):
        for string in criterion.strings:
            shorter = next((each for each in criterion.strings if each in string[:-1]), None)
            # One that is complete too early does not count, and the longer one may then.
            if shorter is not None and criterion.min_new_tokens == 0:
                yield (
                    f"stop_criteria.{i} (stop_strings) never gets as far as {string!r}: "
                    f"{shorter!r} ends the answer before."
                )


def _no_end(recipe: Recipe) -> _Found:
    types = {criterion.type for criterion in recipe.stop_criteria}
    bounded = any(criterion.bound(1) is not None for criterion in recipe.stop_criteria)
    if not bounded and "time_limit" not in types:
        yield (
            "stop_criteria have no limit: an answer that does not end by itself goes on until the "
            "model's context is full."
        )
    if not types & {"eos", "stop_token_ids"}:
        yield "stop_criteria have no eos: the answer goes on after the model has ended it."
