"""Whether what a check was given can be tried at all."""

from __future__ import annotations

from typing import Any

from genkit.components.base import Component
from genkit.core.contracts import name_of

__all__ = ["refuse_class", "refuse_other_kinds"]


def refuse_class(part: Any) -> None:
    """Refuse a class where its object is meant.

    Raises:
        TypeError: it is a class.
    """
    if isinstance(part, type):
        name = part.__name__
        raise TypeError(f"{name} is a class; give an object: {name}(), with its options if any")


def refuse_other_kinds(part: Any, kind: str) -> None:
    """Refuse what is not a part of a kind that is called: a component of another, or no callable.

    Args:
        part: what was given.
        kind: `logits_processor`, `sampler` or `stop_criterion`.

    Raises:
        TypeError: it is something else, a class for instance.
    """
    refuse_class(part)
    found = part.kind if isinstance(part, Component) else kind
    if found != kind:
        raise TypeError(f"{name_of(part)!r} is a {found}, and a {kind} is checked here")
    if not callable(part) and not hasattr(part, "bind"):
        raise TypeError(
            f"{part!r} is no {kind}: it is neither a callable nor an object with `bind(run)`"
        )
