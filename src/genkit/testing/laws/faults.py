"""A cache that fails when it is told to."""

from __future__ import annotations

from typing import Any


class Fault(Exception):
    """Raised on purpose."""


class FaultyCache:
    """Passes everything on to another cache, and notes what it is asked for.

    Args:
        inner: the cache.
        fails_at: which of the attributes that are asked for raises `Fault`, counted from 0; None:
            none does.

    Attributes:
        asked: the names of the attributes that were asked for.
    """

    def __init__(self, inner: Any, fails_at: int | None = None) -> None:
        self._inner = inner
        self._fails_at = fails_at
        self.asked: list[str] = []

    def __getattr__(self, attribute: str) -> Any:
        """The attribute of the other cache."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self.asked.append(attribute)
        if len(self.asked) - 1 == self._fails_at:
            raise Fault(f"`cache.{attribute}` fails on purpose")
        return getattr(self._inner, attribute)

    @property
    def advanced_too_soon(self) -> bool:
        """Whether the piece of a forward that failed had called `advance` already."""
        *before, failed = self.asked
        if failed == "open":  # the next piece begins; those before it have succeeded
            return False
        begin = len(before) - before[::-1].index("open") if "open" in before else 0
        return "advance" in before[begin:]
