"""The criteria that limit lengths, taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genkit.components.stopping.max_length import MaxLength
from genkit.components.stopping.max_new_tokens import MaxNewTokens
from genkit.errors import UnsupportedError


def with_limit(stop_criteria: Sequence[Any], max_new_tokens: int) -> tuple[Any, ...]:
    """The criteria with another limit of new tokens, in the place of the old one."""
    limit = MaxNewTokens(limit=max_new_tokens)
    if any(isinstance(criterion, MaxNewTokens) for criterion in stop_criteria):
        return tuple(limit if isinstance(c, MaxNewTokens) else c for c in stop_criteria)
    return (*stop_criteria, limit)


def check_lengths(stop_criteria: Sequence[Any]) -> None:
    """Refuse limits that contradict each other.

    Raises:
        UnsupportedError: one kind is given twice, or a limit of new tokens can never be reached.
    """
    new = [c.limit for c in stop_criteria if isinstance(c, MaxNewTokens)]
    total = [c.limit for c in stop_criteria if isinstance(c, MaxLength)]
    for name, limits in (("max_new_tokens", new), ("max_length", total)):
        if len(set(limits)) > 1:
            raise UnsupportedError(f"{name} is given twice, with {limits}; leave one of them")
    if new and total and min(new) >= min(total):
        raise UnsupportedError(
            f"max_new_tokens {min(new)} can never be reached below max_length {min(total)}, which "
            "counts the prompt too; drop one of the two"
        )
