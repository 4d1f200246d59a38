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
        began: how many columns the other cache held when the last piece of a forward began.
    """

    def __init__(self, inner: Any, fails_at: int | None = None) -> None:
        self._inner = inner
        self._fails_at = fails_at
        self.asked: list[str] = []
        self.began: int = inner.length

    def __getattr__(self, attribute: str) -> Any:
        """The attribute of the other cache."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self.asked.append(attribute)
        if attribute == "open":
            self.began = self._inner.length
        if len(self.asked) - 1 == self._fails_at:
            raise Fault(f"`cache.{attribute}` fails on purpose")
        return getattr(self._inner, attribute)
