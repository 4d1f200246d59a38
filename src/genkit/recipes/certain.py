"""Recipes that always take the most probable token."""

from __future__ import annotations

from typing import Any

from genkit.recipes.groups import leaves_one
from genkit.recipes.recipe import Recipe


def num_decisive(recipe: Recipe) -> int | None:
    """How many processors, from the first on, decide which token is taken.

    Those after them keep the most probable token, or come when it is the only one left. None where
    another token may be drawn.
    """
    if recipe.decoder.type != "autoregressive":
        return None  # another decoder may do more with the distribution than choose from it
    count = _place_of_choice(recipe)
    while count and _keeps_it(recipe.processors[count - 1]):
        count -= 1
    return count


def _place_of_choice(recipe: Recipe) -> int | None:
    """How many processors there are before the most probable token is taken, if it always is."""
    parts = recipe.processors
    if recipe.sampler.type == "greedy":
        return len(parts)
    for i, part in enumerate(parts):
        if part.keeps_argmax and leaves_one(part):
            later = parts[i + 1 :]
            return None if any(each.may_allow or each.may_empty for each in later) else i
    return None


def _keeps_it(part: Any) -> bool:
    """Whether the most probable token is the same after a processor as before it."""
    return bool(part.keeps_argmax or part.is_neutral)
