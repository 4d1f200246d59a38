"""Runs in which hardly anything is allowed; chance would draw them too rarely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from genkit.testing.laws.history import History, Row
from genkit.text.tokenizer import Tokenizer

__all__ = ["edge_histories"]

_NUM_STEPS = 8  # some parts do something only after a while
_MOST_FAVOURED = 4


def edge_histories(
    vocab_size: int,
    *,
    tokenizer: Tokenizer | None = None,
    eos_token_ids: Sequence[int] = (1,),
    favoured: Sequence[int] = (),
) -> list[History]:
    """Runs of one row, in which one id is allowed, or two, or just the favoured ones.

    Args:
        vocab_size: width of the logits.
        tokenizer, eos_token_ids: the model's.
        favoured: ids that matter to the part; of many a few get runs of their own.
    """
    inside = [token_id for token_id in favoured if 0 <= token_id < vocab_size]
    ends = [token_id for token_id in eos_token_ids if token_id < vocab_size]
    targets = dict.fromkeys([*inside[:_MOST_FAVOURED], *ends, vocab_size - 1])
    rows = [row for token_id in targets for row in _rows(token_id, vocab_size)]
    if inside:
        rows.append(_row([inside[0]], inside[:1], inside, vocab_size))
    return [History((row,), frozenset(eos_token_ids), tokenizer) for row in rows]


def _rows(token_id: int, vocab_size: int) -> Iterator[Row]:
    """Rows that a part empties which forbids this id, the last one, or all that there were."""
    other = (token_id + 1) % vocab_size
    yield _row([token_id], [token_id], [token_id], vocab_size)
    yield _row([other], [other], [token_id], vocab_size)
    if other != token_id:
        yield _row([other, token_id], [other, token_id], [token_id, other], vocab_size)


def _row(
    prompt: Sequence[int], token_ids: Sequence[int], allowed: Sequence[int], vocab_size: int
) -> Row:
    """A row with the same few tokens allowed in each step."""
    logits = torch.full((_NUM_STEPS, vocab_size), -torch.inf)
    logits[:, list(allowed)] = 1.0 + torch.arange(len(allowed)) / 2
    generated = (tuple(token_ids) * _NUM_STEPS)[:_NUM_STEPS]
    return Row(tuple(prompt), generated, logits)
