"""Numbers in options that pydantic would take, and that nobody means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

__all__ = ["misfits"]

_WIDEST = 2**63

Path = tuple[str | int, ...]


def misfits(annotation: Any, value: Any) -> Iterator[tuple[Path, str, Any]]:
    """Bools given for numbers, and whole numbers that no tensor holds, anywhere in a value.

    Python counts True as 1; whoever writes `k: true` has not asked for k = 1.

    Args:
        annotation: the type of the option.
        value: what is given for it.

    Returns:
        For each where it is, what is wrong, and what was found.
    """
    accepted = list(_types(annotation))
    if int not in accepted and float not in accepted:
        return
    for path, found in _ends(value):
        if isinstance(found, bool):
            if bool not in accepted:
                yield path, f"a number is expected, found {found!r}", found
        elif isinstance(found, int) and float not in accepted and not -_WIDEST <= found < _WIDEST:
            message = f"a whole number from -2**63 to 2**63 - 1 is expected, found {found!r}"
            yield path, message, found


def _types(annotation: Any) -> Iterator[Any]:
    """The types at the ends of an annotation; of a group of options, those of its options."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for field in annotation.model_fields.values():
            yield from _types(field.annotation)
    elif get_origin(annotation) is Callable or not get_args(annotation):
        yield annotation
    else:
        for inner in get_args(annotation):
            yield from _types(inner)


def _ends(value: Any) -> Iterator[tuple[Path, Any]]:
    """The values at the ends of nested data, and the keys of mappings, each with its place."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield (key,), key
            yield from (((key, *path), end) for path, end in _ends(item))
    elif isinstance(value, list | tuple | set | frozenset):
        for i, item in enumerate(value):
            yield from (((i, *path), end) for path, end in _ends(item))
    else:
        yield (), value
