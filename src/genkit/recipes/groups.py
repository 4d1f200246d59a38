"""Which logits processors do the same kind of thing."""

from __future__ import annotations

from collections.abc import Iterator
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

ADDITIVE = {"presence_penalty", "frequency_penalty"}

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
    "xtc",
}

TRUNCATIONS = SHAPED_BY_TEMPERATURE | {"top_k", "top_n_sigma"}

TEMPERATURES = {"temperature", "dynamic_temperature"}


def leaves_one(part: Any) -> bool:
    """Whether a processor leaves a single token."""
    match part.type:
        case "top_k":
            return bool(part.k == part.min_keep == 1 and part.ties == "by_id")
        case "top_p":
            small = part.p == 0 and part.rule != "above<=p"
            return bool(small and part.min_keep == 1 and part.ties == "by_id")
        case "temperature":
            return part.divisor is None
        case "allowed_tokens":
            return len(set(part.token_ids)) == 1
    return False


def active_pairs(recipe: Recipe) -> Iterator[tuple[int, Any, int, Any]]:
    """Every two processors that do something, with their places, in their order."""
    active = [(i, part) for i, part in enumerate(recipe.processors) if not part.is_neutral]
    for (i, first), (j, second) in combinations(active, 2):
        yield i, first, j, second


def may_come_back(recipe: Recipe, place: int) -> bool:
    """Whether a later processor may allow what the one in some place forbids."""
    return any(part.may_allow for part in recipe.processors[place + 1 :])
