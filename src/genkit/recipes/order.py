"""Warnings about recipes that are allowed and probably not meant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from genkit.recipes.recipe import Recipe

PENALTIES = {
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "prompt_repetition_penalty",
    "dry",
}

BIASES = {"token_bias", "sequence_bias"}

MASKS = {
    "allowed_tokens",
    "bad_words",
    "begin_suppress_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram",
    "prompt_no_repeat_ngram",
    "suppress_tokens",
}
"""What forbids tokens by what they are, whatever their logits."""

MASKS_OF_THE_MOMENT = {
    "begin_suppress_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram",
    "prompt_no_repeat_ngram",
}
"""Those whose tokens depend on the text so far; of the others it is known which they forbid."""

ADDITIVE = {"presence_penalty", "frequency_penalty"}

# What these keep depends on how peaked the distribution is. `top_k` and `top_n_sigma` keep the same
# tokens at any temperature, so their place does not matter.
SHAPED_BY_TEMPERATURE = {
    "top_p",
    "min_p",
    "typical_p",
    "epsilon",
    "eta",
    "top_h",
    "tail_free",
    "top_a",
}

TRUNCATIONS = SHAPED_BY_TEMPERATURE | {"top_k", "top_n_sigma", "xtc"}

TEMPERATURES = {"temperature", "dynamic_temperature"}

_Found = Iterator[str]


def order_warnings(recipe: Recipe) -> list[str]:
    """What looks wrong in a recipe that can be built, a sentence each, with the reason."""
    return [
        *_order_of_processors(recipe),
        *_twice(recipe),
        *_neutral(recipe),
        *_single_token(recipe),
        *_disputed_tokens(recipe),
        *_before_a_choosy_sampler(recipe),
        *_idle_under_greedy(recipe),
        *_least_and_most(recipe),
        *_idle_ends(recipe),
        *_ends(recipe),
    ]


def leaves_one(part: Any) -> bool:
    """Whether a processor leaves a single token."""
    match part.type:
        case "top_k":
            return bool(part.k == part.min_keep == 1 and part.ties == "by_id")
        case "top_p":
            small = part.p == 0 and part.rule != "above<=p"
            return bool(small and part.min_keep == 1 and part.ties == "by_id")
        case "temperature":
            return bool(part.temperature == 0)
        case "allowed_tokens":
            return len(set(part.token_ids)) == 1
    return False


def _pairs(recipe: Recipe) -> Iterator[tuple[int, Any, int, Any]]:
    """Every two processors that do something, in their order."""
    active = [(i, part) for i, part in enumerate(recipe.processors) if not part.is_neutral]
    for (i, first), (j, second) in combinations(active, 2):
        yield i, first, j, second


def _order_of_processors(recipe: Recipe) -> _Found:
    for i, first, j, second in _pairs(recipe):
        reason = _misplaced(first, second)
        if reason:
            yield (
                f"processors.{i} ({first.type}) comes before processors.{j} ({second.type}): "
                f"{reason}."
            )


def _misplaced(first: Any, second: Any) -> str | None:
    """Why the second of two processors would do something else before the first."""
    is_cut = first.type in TRUNCATIONS
    if first.type in SHAPED_BY_TEMPERATURE and second.type in TEMPERATURES:
        if leaves_one(second):
            return None  # it takes the most probable token, which the filter has kept
        return (
            "it chooses from a distribution that the temperature then changes, as in llama.cpp "
            "and mlx-lm; after the temperature, as elsewhere, the same numbers keep other tokens"
        )
    if is_cut and second.type in PENALTIES:
        return "the penalty cannot bring back a token that is already cut off"
    if is_cut and second.type in BIASES:
        return "the bias cannot bring back a token that is already cut off"
    if is_cut and second.type == "watermark":
        return "the mark can only choose among the tokens that are left, and is weaker for it"
    if is_cut and second.type in MASKS:
        return "it may forbid all tokens that are left, which ends the run with an error"
    if first.type in MASKS_OF_THE_MOMENT and second.type in BIASES and _favours(second):
        return "the bias cannot bring back a token that is forbidden already"
    if first.type in ADDITIVE and second.type == "repetition_penalty":
        return (
            "what is subtracted first is then multiplied; engines that have both multiply first, "
            "so that the same numbers penalise otherwise"
        )
    if first.type == "renormalize" and second.type == "repetition_penalty":
        return (
            "log-probabilities are all negative, so that the penalty multiplies where it would "
            "divide positive logits"
        )
    forbids = is_cut or first.type in MASKS or first.type == "allowed_tokens"
    if forbids and second.type == "remove_invalid" and second.minus_infinity == "lowest":
        return "it gives forbidden tokens a number again, and what follows may choose them"
    if first.type == "top_p" and second.type == "top_k":
        return (
            "the mass is counted among all tokens; after top_k, as in most engines, it is counted "
            "among the k, so that fewer are kept"
        )
    if first.type == "min_p" and second.type == "top_p":
        return (
            "the mass is counted among the tokens that min_p has left, so that fewer are kept than "
            "in the other order"
        )
    return None


def _twice(recipe: Recipe) -> _Found:
    for i, first, j, second in _pairs(recipe):
        if first.type != second.type:
            continue
        where = f"processors.{i} and processors.{j} are"
        if first == second:
            yield f"{where} the same {first.type}: {_SAME.get(first.type, 'both are applied')}."
        elif first.type == "top_k":
            yield from _two_top_k(i, first, j, second)
        elif first.type == "min_p":
            idle, other = (i, second) if first.min_p <= second.min_p else (j, first)
            if j == i + 1 and first.min_keep == second.min_keep:
                yield (
                    f"processors.{idle} (min_p) does nothing: the other min_p, {other.min_p}, is "
                    "larger."
                )
        elif first.type in ("top_p", "typical_p"):
            yield (
                f"{where} both {first.type}: the second takes its share of the mass that the first "
                "has left, so that fewer tokens are kept than by either."
            )
        elif first.type == "temperature":
            yield (
                f"{where} both temperature: they multiply, to "
                f"{first.temperature * second.temperature:g}."
            )


_SAME = {
    "top_k": "the second does nothing",
    "min_p": "the second does nothing unless something between them changes the logits",
    "top_p": "the second takes its share of the mass that the first has left, so both are applied",
    "temperature": "they multiply, both are applied",
}


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


def _disputed_tokens(recipe: Recipe) -> _Found:
    """Tokens that one processor wants and another forbids."""
    for i, first, j, second in _pairs(recipe):
        for a, wanting, b, forbidding in ((i, first, j, second), (j, second, i, first)):
            wanted, how = _wanted(wanting)
            disputed = sorted(wanted & _forbidden(forbidding))
            if disputed:
                outcome = _outcome(how, is_later=a > b, is_all=len(disputed) == len(wanted))
                yield (
                    f"processors.{a} ({wanting.type}) {how} token {disputed[0]}, and "
                    f"processors.{b} ({forbidding.type}) forbids it: {outcome}."
                )
        yield from _forced_but_not_allowed(i, first, j, second)
        yield from _favoured_but_not_allowed(i, first, j, second)


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


def _favours(part: Any) -> bool:
    return bool(_wanted(part)[0])


def _forbidden(part: Any) -> set[int]:
    match part.type:
        case "suppress_tokens":
            return set(part.token_ids)
        case "bad_words":
            return {ids[0] for ids in part.token_ids if len(ids) == 1}
        case "token_bias":
            return {i for i, bias in part.biases.items() if float(bias) == -math.inf}
    return set()


def _outcome(how: str, is_later: bool, is_all: bool) -> str:
    if how == "forces" and is_later:
        return "where it is forced it comes all the same"
    if how == "forces":
        return "where it is forced nothing is left, which ends the run with an error"
    if how == "allows" and is_all:
        return "nothing is left, which ends the run with an error"
    return "it never comes"


def _forced_but_not_allowed(i: int, first: Any, j: int, second: Any) -> _Found:
    if second.type == "allowed_tokens":
        wanted, how = _wanted(first)
        missing = sorted(wanted - set(second.token_ids))
        if how == "forces" and missing:
            yield (
                f"processors.{i} ({first.type}) forces token {missing[0]}, which processors.{j} "
                "(allowed_tokens) does not allow: nothing is left there, which ends the run with "
                "an error."
            )


def _favoured_but_not_allowed(i: int, first: Any, j: int, second: Any) -> _Found:
    for a, favouring, b, allowing in ((i, first, j, second), (j, second, i, first)):
        wanted, how = _wanted(favouring)
        if how == "favours" and allowing.type == "allowed_tokens":
            missing = sorted(wanted - set(allowing.token_ids))
            if missing:
                yield (
                    f"processors.{a} ({favouring.type}) favours token {missing[0]}, and "
                    f"processors.{b} (allowed_tokens) does not allow it: it never comes."
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
    if recipe.sampler.type != "greedy" or recipe.decoder.type != "autoregressive":
        return
    idle: list[tuple[int, Any]] = []
    for i, processor in reversed(list(enumerate(recipe.processors))):
        if not processor.keeps_argmax:
            break  # what comes before it may change what it sees
        idle.append((i, processor))
    for i, processor in reversed(idle):
        yield (
            f"processors.{i} ({processor.type}) does nothing: the sampler is greedy, and the most "
            "probable token stays the same."
        )


def _least_and_most(recipe: Recipe) -> _Found:
    """A least length above the greatest, where it is the end token that could end the answer."""
    if not any(criterion.type == "eos" for criterion in recipe.stop_criteria):
        return
    for least, most in (
        ("min_new_tokens", "max_new_tokens"),
        ("min_new_tokens", "max_length"),
        ("min_length", "max_length"),
    ):
        limits = [limit for _, limit in _limits(recipe.stop_criteria, most)]
        for i, limit in _limits(recipe.processors, least):
            if limits and limit > min(limits):
                yield (
                    f"processors.{i} ({least}) forbids the end until {limit} tokens, and {most} "
                    f"ends the answer at {min(limits)}: no answer ends by itself."
                )


def _idle_ends(recipe: Recipe) -> _Found:
    """Strings and patterns that count only after the answer has ended."""
    limits = [limit for _, limit in _limits(recipe.stop_criteria, "max_new_tokens")]
    most = min(limits, default=math.inf)
    for i, criterion in enumerate(recipe.stop_criteria):
        begins = getattr(criterion, "min_new_tokens", 0)
        if begins >= most:
            yield (
                f"stop_criteria.{i} ({criterion.type}) does nothing: it counts after {begins} "
                f"tokens, and max_new_tokens ends the answer at {most}."
            )


def _limits(parts: Sequence[Any], type: str) -> list[tuple[int, int]]:
    """The place and the limit of each part of a type."""
    return [(i, part.limit) for i, part in enumerate(parts) if part.type == type]


def _ends(recipe: Recipe) -> _Found:
    types = {criterion.type for criterion in recipe.stop_criteria}
    bounded = any(criterion.bound(1) is not None for criterion in recipe.stop_criteria)
    if not bounded and "time_limit" not in types:
        yield (
            "stop_criteria have no limit: an answer that does not end by itself goes on until the "
            "model's context is full."
        )
    if not types & {"eos", "stop_token_ids"}:
        yield "stop_criteria have no eos: the answer goes on after the model has ended it."
