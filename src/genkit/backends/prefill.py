"""How a prompt is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator


def pieces(num_columns: int, n: int, chunk: int | None) -> Iterator[tuple[int, int]]:
    """The first column of each piece and the one after its last, in order.

    Args:
        num_columns: how many columns there are to feed.
        n: how many of the last ones must be in one piece, because their logits are wanted.
        chunk: the most columns of a piece, unless `n` is more; None: there is one piece.
    """
    last = num_columns - max(n, 1)  # the latest start of the last piece
    start = 0
    while chunk is not None and start < last and start + chunk < num_columns:
        end = min(start + chunk, last)
        yield start, end
        start = end
    yield start, num_columns
