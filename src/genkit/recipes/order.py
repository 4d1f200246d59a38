"""Warnings about recipes that are allowed and probably not meant."""

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


def order_warnings(recipe: Recipe) -> list[str]:
    """What looks wrong in a recipe that can be built, a sentence each, with the reason."""
    return [
        *_order_of_processors(recipe),
        *_twice(recipe),
        *_idle_under_greedy(recipe),
        *_ends(recipe),
    ]


def _order_of_processors(recipe: Recipe) -> Iterator[str]:
    for (i, first), (j, second) in combinations(enumerate(recipe.processors), 2):
        where = f"processors.{i} ({first.type}) comes before processors.{j} ({second.type})"
        if first.type in SHAPED_BY_TEMPERATURE and second.type in TEMPERATURES:
            yield f"{where}: it chooses from a distribution that the temperature then changes."
        if first.type in TRUNCATIONS and second.type in PENALTIES:
            yield f"{where}: the penalty cannot bring back a token that is already cut off."


def _twice(recipe: Recipe) -> Iterator[str]:
    for (i, first), (j, second) in combinations(enumerate(recipe.processors), 2):
        if first == second:
            yield f"processors.{i} and processors.{j} are the same {first.type}: both are applied."


def _idle_under_greedy(recipe: Recipe) -> Iterator[str]:
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


def _ends(recipe: Recipe) -> Iterator[str]:
    types = {criterion.type for criterion in recipe.stop_criteria}
    bounded = any(criterion.bound(1) is not None for criterion in recipe.stop_criteria)
    if not bounded and "time_limit" not in types:
        yield (
            "stop_criteria have no limit: an answer that does not end by itself goes on until the "
            "model's context is full."
        )
    if not types & {"eos", "stop_token_ids"}:
        yield "stop_criteria have no eos: the answer goes on after the model has ended it."
