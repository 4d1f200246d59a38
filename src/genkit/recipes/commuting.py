"""Which two logits processors may change places, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

from genkit.recipes.groups import (
    BIASES,
    MASKS,
    SHAPED_BY_TEMPERATURE,
    TEMPERATURES,
    TRUNCATIONS,
    leaves_one,
)


class Exchange(NamedTuple):
    """Whether two neighbours do something else in the other order, and why, in a sentence."""

    matters: bool
    reason: str


_ADDS = {*BIASES, "presence_penalty", "frequency_penalty", "dry"}


def exchange(first: Any, second: Any) -> Exchange:
    """What happens where two processors change places."""
    types = {first.type, second.type}
    if first.may_allow or second.may_allow:
        return Exchange(True, "one of them may allow tokens that the other forbids")
    if leaves_one(first) or leaves_one(second):
        return Exchange(True, "one of them leaves a single token")
    if types <= MASKS:
        return Exchange(False, "what either forbids stays forbidden")
    for part, other in ((first, second), (second, first)):
        if part.type in MASKS:
            return _with_mask(other)
    for part, other in ((first, second), (second, first)):
        if part.type == "dynamic_temperature":
            return _with_dynamic_temperature(other)
    for part, other in ((first, second), (second, first)):
        if part.type == "temperature":
            return _with_temperature(other)
    return _others(first, second)


def _scales(part: Any) -> bool:
    """Whether it multiplies logits by what does not depend on how large they are."""
    if part.type == "repetition_penalty":
        return bool(part.base == "logits")
    return bool(part.type in ("prompt_repetition_penalty", "temperature"))


def _with_mask(other: Any) -> Exchange:
    if other.type in _ADDS or _scales(other):
        return Exchange(False, "a forbidden token stays forbidden, and the others are untouched")
    if other.type in TRUNCATIONS:
        return Exchange(True, "a truncation goes by the tokens that are allowed when it comes")
    return _UNKNOWN


def _with_dynamic_temperature(other: Any) -> Exchange:
    if other.type in SHAPED_BY_TEMPERATURE:
        return _SHAPED
    if other.type in TRUNCATIONS:
        return Exchange(True, "a dynamic temperature goes by the tokens that are left")
    if other.type in TEMPERATURES:
        return Exchange(True, "a dynamic temperature goes by how flat the distribution is")
    return _UNKNOWN


def _with_temperature(other: Any) -> Exchange:
    if other.type in ("top_k", "top_n_sigma"):
        return Exchange(False, "it keeps the same tokens at any temperature")
    if other.type == "min_p":
        return Exchange(True, "min_p after the temperature T is min_p ** T before it")
    if other.type in SHAPED_BY_TEMPERATURE:
        return _SHAPED
    if other.type == "temperature":
        return Exchange(False, "temperatures multiply")
    if _scales(other):
        return Exchange(False, "both multiply the logits")
    if other.type in _ADDS:
        return Exchange(True, "a temperature after it divides what it adds as well")
    return _UNKNOWN


def _others(first: Any, second: Any) -> Exchange:
    types = {first.type, second.type}
    if types <= _ADDS:
        return Exchange(False, "both add to the logits")
    if types & _ADDS and (_scales(first) or _scales(second)):
        return Exchange(True, "one adds, and the other goes by the sign of the logits")
    if types == {"top_k", "min_p"} and first.min_keep == second.min_keep == 1:
        return Exchange(False, "min_p goes by the most probable token, which top_k keeps")
    if types == {"top_k"} and first.ties == second.ties:
        return Exchange(False, "the smaller k decides")
    if types == {"min_p"} and first.min_keep == second.min_keep:
        return Exchange(False, "the larger min_p decides")
    if types & TRUNCATIONS and not types <= TRUNCATIONS:
        return Exchange(True, "what is cut off does not come back, whatever is done to it later")
    if "xtc" in types and types <= TRUNCATIONS:
        return Exchange(True, "xtc drops the most probable tokens, by which the other goes")
    if "top_p" in types and types <= TRUNCATIONS:
        return Exchange(True, "top_p takes its share of the mass that is left when it comes")
    return _UNKNOWN


_SHAPED = Exchange(True, "which tokens it keeps depends on the temperature before it")

_UNKNOWN = Exchange(True, "each sees what the other has left")
