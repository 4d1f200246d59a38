"""Whether what a check was given can be tried at all."""

from __future__ import annotations

from typing import Any

from genkit.components.base import Component
from genkit.core.contracts import name_of
from genkit.errors import UnsupportedError
from genkit.testing.laws.comparison import grade_of

__all__ = ["refuse_class", "refuse_other_kinds", "refuse_tolerance_without_bound"]


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


def refuse_tolerance_without_bound(manager: Any) -> None:
    """Refuse a cache manager that promises a bound and states none.

    Raises:
        UnsupportedError: its grade is `tolerance`, and `logit_bound` is not above 0.
    """
    bound = getattr(manager, "logit_bound", 0.0)
    if grade_of(manager) == "tolerance" and not bound > 0:
        raise UnsupportedError(
            f"the cache {name_of(manager)!r} has the grade 'tolerance' and states no bound "
            f"(`logit_bound` is {bound!r}); state by how much any logit may differ from the one "
            "without a cache, or choose the grade `exact` or `lossy`"
        )
