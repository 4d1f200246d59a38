"""The base class of a kind of part."""

from __future__ import annotations

from genkit.components.base import Component


def base_of(part_class: type[Component]) -> type[Component]:
    """The base of the part's kind: the class that says what kind it is."""
    [base] = [each for each in part_class.__mro__ if "kind" in vars(each)]
    return base
