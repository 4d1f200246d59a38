"""Tokens that one part of a recipe wants and another forbids."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from genkit.recipes.groups import active_pairs, may_come_back
from genkit.recipes.recipe import Recipe

_Found = Iterator[str]


def disputed_tokens(recipe: Recipe) -> _Found:
    """A sentence for every two parts that are at odds over a token."""
    for i, first, j, second in active_pairs(recipe):
        if first.type == second.type == "allowed_tokens":
            yield from _nothing_in_common(i, first, j, second)
        else:
            yield from _dispute(i, first, j, second)
            yield from _dispute(j, second, i, first)
    yield from _ends_that_never_come(recipe)


def _nothing_in_common(i: int, first: Any, j: int, second: Any) -> _Found:
    if not set(first.token_ids) & set(second.token_ids):
        yield (
            f"processors.{i} and processors.{j} are both allowed_tokens, and no token is in both: "
            "nothing is left, which ends the run with an error."
        )


def _dispute(a: int, wanting: Any, b: int, barring: Any) -> _Found:
    wanted, how = _wanted(wanting)
    disputed = _barred(barring, wanted)
    is_all = disputed == wanted
    outcome = _outcome(wanting, how, barring, is_later=a > b, is_all=is_all) if disputed else None
    if outcome is not None:
        yield (
            f"processors.{a} ({wanting.type}) {how} token {min(disputed)}, and "
            f"processors.{b} ({barring.type}) {_bars(barring)} it: {outcome}."
        )


def _wanted(part: Any) -> tuple[set[int], str]:
    match part.type:
        case "allowed_tokens":
            return set(part.token_ids), "allows"
        case "forced_bos":
            return {part.token_id}, "forces"
        case "forced_eos":
            return set(part.token_ids or ()), "forces"
        case "token_bias":
            return {i for i, bias in part.biases.items() if float(bias) > 0}, "favours"
        case "sequence_bias":
            favoured = (each for each in part.sequences if float(each.bias) > 0)
            return {each.token_ids[-1] for each in favoured}, "favours"
    return set(), ""


def _barred(part: Any, token_ids: set[int]) -> set[int]:
    """Those of some tokens that a processor forbids, if only at the beginning."""
    match part.type:
        case "allowed_tokens":
            return token_ids - set(part.token_ids)
        case "suppress_tokens" | "begin_suppress_tokens":
            return token_ids & set(part.token_ids)
        case "bad_words" if not part.spare_end_tokens:  # which it spares the model knows
            return token_ids & {ids[0] for ids in part.token_ids if len(ids) == 1}
        case "token_bias":
            return {i for i in token_ids if float(part.biases.get(i, 0)) == -math.inf}
    return set()


def _bars(part: Any) -> str:
    return "does not allow" if part.type == "allowed_tokens" else "forbids"


def _outcome(wanting: Any, how: str, barring: Any, is_later: bool, is_all: bool) -> str | None:
    """What becomes of a token that one wants and the other bars; None where both may be meant."""
    if barring.type == "begin_suppress_tokens":
        return _outcome_at_begin(wanting, how, barring, is_later, is_all)
    if how == "forces" and is_later:
        is_meant = barring.type == "allowed_tokens"
        return None if is_meant else "where it is forced it comes all the same"
    if how == "forces" and is_all:
        return "where it is forced nothing is left, which ends the run with an error"
    if how == "allows" and is_all:
        return "nothing is left, which ends the run with an error"
    return "it never comes"


def _outcome_at_begin(
    wanting: Any, how: str, barring: Any, is_later: bool, is_all: bool
) -> str | None:
    """The same where it is barred at the beginning alone."""
    if how == "favours":
        return "where it is forbidden the bias does nothing"
    if how == "allows":
        error = "where it is forbidden nothing is left, which ends the run with an error"
        return error if is_all else None
    if wanting.type != "forced_bos" or barring.begin_index > 0:
        return None  # it is forced in another place
    if is_later:
        return "where it is forced it comes all the same"
    return "where it is forced nothing is left, which ends the run with an error"


def _ends_that_never_come(recipe: Recipe) -> _Found:
    for k, criterion in enumerate(recipe.stop_criteria):
        ends = set(named_ends(criterion) or ())
        for i, part in enumerate(recipe.processors):
            barred = _barred(part, ends)
            if barred and not may_come_back(recipe, i) and part.type != "begin_suppress_tokens":
                yield (
                    f"stop_criteria.{k} ({criterion.type}) ends an answer at token {min(barred)}, "
                    f"and processors.{i} ({part.type}) {_bars(part)} it: it never comes."
                )


def named_ends(criterion: Any) -> tuple[int, ...] | None:
    """The tokens by which a stop criterion ends an answer, as far as the recipe names them."""
    ends: tuple[int, ...] | None = None
    if criterion.type in ("eos", "stop_token_ids"):
        ends = criterion.token_ids
    return ends
