"""Warnings about recipes that are allowed and probably not meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genkit.recipes.certain import num_decisive
from genkit.recipes.commuting import exchange
from genkit.recipes.disputes import disputed_tokens
from genkit.recipes.ends import end_warnings
from genkit.recipes.groups import (
    ADDITIVE,
    BIASES,
    MASKS,
    PENALTIES,
    SHAPED_BY_TEMPERATURE,
    TEMPERATURES,
    TRUNCATIONS,
    active_pairs,
    leaves_one,
)
from genkit.recipes.recipe import Recipe

_Found = Iterator[str]


def order_warnings(recipe: Recipe) -> list[str]:
    """What looks wrong in a recipe that can be built, a sentence each, with the reason."""
    return [
        *_order_of_processors(recipe),
        *_twice(recipe),
        *_neutral(recipe),
        *_single_token(recipe),
        *disputed_tokens(recipe),
        *_before_a_choosy_sampler(recipe),
        *_idle_under_greedy(recipe),
        *end_warnings(recipe),
    ]


def _order_of_processors(recipe: Recipe) -> _Found:
    for i, first, j, second in active_pairs(recipe):
        reason = _misplaced(first, second)
        if reason:
            yield (
                f"processors.{i} ({first.type}) comes before processors.{j} ({second.type}): "
                f"{reason}."
            )


def _misplaced(first: Any, second: Any) -> str | None:
    """Why the second of two processors would do something else before the first."""
    is_cut = first.type in TRUNCATIONS
    if is_cut and second.type == "watermark":
        return "the mark can only choose among the tokens that are left, and is weaker for it"
    if is_cut and second.type in MASKS:
        return "it may forbid all tokens that are left, which ends the run with an error"
    if first.type == "renormalize" and second.type == "repetition_penalty":
        return (
            "log-probabilities are all negative, so that the penalty multiplies where it would "
            "divide positive logits"
        )
    forbids = is_cut or first.type in MASKS
    if forbids and second.type == "remove_invalid" and second.minus_infinity == "lowest":
        return "it gives forbidden tokens a number again, and what follows may choose them"
    habit = None if leaves_one(first) or leaves_one(second) else _habit(first.type, second.type)
    return None if habit is None else f"{exchange(first, second).reason}; {habit}"


def _habit(first: str, second: str) -> str | None:
    """What engines do with two processors, where this order is not that of all of them."""
    if first in SHAPED_BY_TEMPERATURE and second in TEMPERATURES:
        return "this order is as in llama.cpp and mlx-lm, elsewhere the temperature is first"
    if first in TRUNCATIONS and second in PENALTIES | BIASES:
        return "engines have penalties and biases first"
    if first in ADDITIVE and second == "repetition_penalty":
        return "SGLang has this order, other engines multiply first"
    if first == "top_p" and second == "top_k":
        return "SGLang and mlx-lm have this order, elsewhere top_k is first, and fewer are kept"
    if first == "min_p" and second == "top_p":
        return "vLLM and exllamav3 have this order, elsewhere top_p is first, and more are kept"
    if first == "xtc" and second in TRUNCATIONS - {"xtc", "top_k"}:
        return "engines that have both have xtc after it"
    return None


def _twice(recipe: Recipe) -> _Found:
    for i, first, j, second in active_pairs(recipe):
        where = f"processors.{i} and processors.{j} are"
        if {first.type, second.type} == TEMPERATURES:
            if not leaves_one(first) and not leaves_one(second):
                yield f"{where} both temperatures: {_DIVIDED}, where llama.cpp takes one of them."
        elif first.type != second.type:
            continue
        elif first == second:
            same = _together(first, second) or _SAME.get(first.type, "both are applied")
            yield f"{where} the same {first.type}: {same}."
        elif first.type == "top_k":
            yield from _two_top_k(i, first, j, second)
        elif first.type == "min_p":
            idle, other = (i, second) if first.min_p <= second.min_p else (j, first)
            if j == i + 1 and first.min_keep == second.min_keep:
                yield (
                    f"processors.{idle} (min_p) does nothing: the other min_p, {other.min_p}, is "
                    "larger."
                )
        else:
            effect = _together(first, second)
            if effect is not None:
                yield f"{where} both {first.type}: {effect}."


_DIVIDED = "the logits are divided by one and by the other"

_UNLESS = "the second does nothing unless something between them"

_SAME = {
    "top_k": "the second does nothing",
    "min_p": f"{_UNLESS} changes the logits",
    **dict.fromkeys(MASKS, f"{_UNLESS} allows tokens again"),
}


def _together(first: Any, second: Any) -> str | None:
    """What two processors of a type do together, where each does what it would do alone."""
    match first.type:
        case "top_p" | "typical_p":
            return (
                "the second takes its share of the mass that the first has left, so that fewer "
                "tokens are kept than by either"
            )
        case "temperature":
            return f"they multiply, to {first.temperature * second.temperature:g}"
        case "dynamic_temperature":
            return _DIVIDED
        case "prompt_repetition_penalty":
            return f"they multiply, to {first.penalty * second.penalty:g}"
        case "repetition_penalty" if first.base == second.base == "logits":
            product = first.penalty * second.penalty
            return f"they multiply, to {product:g}" if _count_alike(first, second) else None
        case "presence_penalty" | "frequency_penalty":
            total = first.penalty + second.penalty
            return f"they add up, to {total:g}" if _count_alike(first, second) else None
    return None


def _count_alike(first: Any, second: Any) -> bool:
    """Whether the same tokens count for two penalties; two that differ in that may be meant."""
    return bool(first.scope == second.scope and first.window == second.window)


def _two_top_k(i: int, first: Any, j: int, second: Any) -> _Found:
    if first.ties == "by_id" and max(first.k, first.min_keep) <= max(second.k, second.min_keep):
        yield f"processors.{j} (top_k) does nothing: processors.{i} has left {first.k} already."
    elif first.k > second.k and j == i + 1:
        yield f"processors.{i} (top_k) does nothing: processors.{j} leaves {second.k} anyway."


def _neutral(recipe: Recipe) -> _Found:
    for i, part in enumerate(recipe.processors):
        if part.is_neutral:
            yield f"processors.{i} ({part.type}) does nothing: its options are neutral."


def _single_token(recipe: Recipe) -> _Found:
    parts = recipe.processors
    place = next((i for i, part in enumerate(parts) if leaves_one(part)), len(parts))
    for j, part in enumerate(parts[place + 1 :], place + 1):
        if part.may_allow:
            return
        if part.may_empty:
            effect = "can only forbid it, which ends the run with an error"
        else:
            effect = "changes nothing any more"
        yield (
            f"processors.{j} ({part.type}) {effect}: processors.{place} ({parts[place].type}) "
            "leaves a single token."
        )


def _before_a_choosy_sampler(recipe: Recipe) -> _Found:
    sampler = recipe.sampler.type
    for i, part in enumerate(recipe.processors):
        if leaves_one(part) and sampler in ("mirostat", "adaptive_p"):
            yield (
                f"processors.{i} ({part.type}) leaves a single token: {sampler} has nothing to "
                "choose from."
            )
            return
        if part.type not in TRUNCATIONS or part.is_neutral:
            continue
        if sampler == "mirostat":
            yield (
                f"processors.{i} ({part.type}) comes before mirostat, which keeps as many tokens "
                "as it needs: it cannot reach its surprise with tokens that are cut off."
            )
        if sampler == "adaptive_p" and part.type != "min_p":
            yield (
                f"processors.{i} ({part.type}) comes before adaptive_p, which aims at tokens of a "
                "certain probability: it cannot take those that are cut off."
            )


def _idle_under_greedy(recipe: Recipe) -> _Found:
    place = num_decisive(recipe)
    if recipe.sampler.type != "greedy" or place is None:
        return
    for i, part in enumerate(recipe.processors[place:], place):
        if not part.is_neutral:
            yield (
                f"processors.{i} ({part.type}) does nothing: the sampler is greedy, and the most "
                "probable token stays the same."
            )
