"""What bound parts without anything of a row have in common."""

from __future__ import annotations

from collections.abc import Sequence


class Rowless:
    """Base of what `bind` makes where it holds something of the run, but nothing of a row."""

    def __init__(self, name: str) -> None:
        self.name = name

    def reorder(self, indices: Sequence[int]) -> None:
        """It holds nothing of a row."""

    def rewind(self, n: int) -> None:
        """It holds no token."""
