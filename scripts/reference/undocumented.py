"""What the code says nothing about."""

from __future__ import annotations

from collections.abc import Sequence


class Undocumented(Exception):
    """Something public has no documentation; the message has a line for each."""

    def __init__(self, lacks: Sequence[str]) -> None:
        self.lacks = tuple(lacks)
        super().__init__("the reference cannot be made:\n" + "\n".join(f"  {x}" for x in lacks))
