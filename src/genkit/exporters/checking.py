"""Compares an exported model with its source, over their common contract."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError
from genkit.exporters.base import Precision

NEW = ((1, 1), (1, 7), (3, 1), (2, 13))
"""Rows, and columns that are fed: one and several of each, none of them what was traced."""

PAST = (0, 1, 9)
"""Columns that are in the cache already."""

EXACT = 1e-4
"""How far logits of a float32 graph may be off, as a part of the largest logit."""


@dataclass(frozen=True)
class Shape:
    """One forward that was compared.

    Attributes:
        rows, past, new: how many rows, columns in the cache and columns fed.
        max_logit_error: how far any logit is off.
    """

    rows: int
    past: int
    new: int
    max_logit_error: float


@dataclass(frozen=True)
class Comparison:
    """How far the logits of two models are apart.

    Attributes:
        shapes: the forwards.
        largest_logit: of the source.
        num_places: positions that were compared, and `num_agreeing`: those where both models find
            the same token the most probable.
    """

    shapes: tuple[Shape, ...]
    largest_logit: float
    num_places: int
    num_agreeing: int

    @property
    def max_logit_error(self) -> float:
        """How far any logit is off."""
        return max(shape.max_logit_error for shape in self.shapes)

    def refuse_what_differs(self, precision: Precision) -> None:
        """Refuse a float32 graph that computes something else, and nonsense in any precision.

        What other precisions lose is a matter of taste and is reported, not judged.

        Raises:
            UnsupportedError: says at which shape the graph is worst.
        """
        worst = max(self.shapes, key=lambda shape: shape.max_logit_error)
        where = (
            f"logits are off by up to {worst.max_logit_error:.3g}, where the largest is "
            f"{self.largest_logit:.3g} (rows {worst.rows}, past {worst.past}, new {worst.new})"
        )
        if precision == "fp32" and worst.max_logit_error > EXACT * self.largest_logit:
            raise UnsupportedError(f"the exported graph does not compute what it should: {where}")
        if self.num_agreeing == 0:
            raise UnsupportedError(
                f"the exported graph computes nonsense: it finds the model's next token in none of "
                f"{self.num_places} places, and {where}"
            )


def compare(source: Any, exported: Any) -> Comparison:
    """Feed both models the same text, in every shape of `NEW` on top of every length of `PAST`.

    It is what the source writes after a few first tokens: on ids without sense, what a coded weight
    changes is out of all proportion.

    Args:
        source, exported: models with `last`; see `genkit.core.contracts.Model`.

    Raises:
        UnsupportedError: vocabularies differ in size, logits are not finite, or a shape cannot be
            run.
    """
    if source.vocab_size != exported.vocab_size:
        raise UnsupportedError(
            f"the exported graph gives {exported.vocab_size} logits and the model "
            f"{source.vocab_size}"
        )
    shapes, largest, num_places, num_agreeing = [], 0.0, 0, 0
    text = _text(source, max(rows for rows, _ in NEW), max(new for _, new in NEW) + max(PAST))
    for (rows, new), past in product(NEW, PAST):
        where = f"rows {rows}, past {past}, new {new}"
        ids = text[:rows, : past + new]
        expected = _logits(source, ids, past)
        try:
            found = _logits(exported, ids, past)
        except Exception as error:  # the classes of a runtime have no common base but this one
            told = " ".join(str(error).split())[:300]
            raise UnsupportedError(f"the exported graph cannot be run ({where}): {told}") from error
        if not found.isfinite().all():
            raise UnsupportedError(f"the exported graph gives logits that are not finite ({where})")
        shapes.append(Shape(rows, past, new, float((found - expected).abs().max())))
        largest = max(largest, float(expected.abs().max()))
        num_places += rows * new
        num_agreeing += int((found.argmax(-1) == expected.argmax(-1)).sum())
    return Comparison(tuple(shapes), largest, num_places, num_agreeing)


def _text(model: Any, rows: int, columns: int) -> torch.Tensor:
    """What a model writes if its tokens are drawn, int64 `[rows, columns]`; the same at every call.

    Raises:
        UnsupportedError: its own logits are not finite.
    """
    generator = torch.Generator().manual_seed(0)
    state = _state(
        torch.randint(0, model.vocab_size, (rows, 1), generator=generator), columns, model
    )
    cache = model.new_cache(state)
    for _ in range(columns - 1):
        logits = model(state.token_ids[:, cache.length :], cache).float().cpu()
        if not logits.isfinite().all():
            raise UnsupportedError("the model itself gives logits that are not finite")
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        state.append(drawn[:, 0].to(model.device))
    return state.token_ids.cpu()


def _state(ids: torch.Tensor, columns: int, model: Any) -> GenerationState:
    rows = len(ids)
    rng = RowRandom([0] * rows, [0] * rows)
    return GenerationState(ids.tolist(), [columns] * rows, rng, device=model.device)


def _logits(model: Any, ids: torch.Tensor, past: int) -> torch.Tensor:
    """Logits of every column from `past` on, float32 `[rows, columns - past, vocab_size]`."""
    columns = ids.shape[1]
    state = _state(ids, columns, model)
    cache = model.new_cache(state)
    if past:
        model(state.token_ids[:, :past], cache)
    fed = state.token_ids[:, cache.length :]  # all of them again, for a model without a cache
    logits: torch.Tensor = model.last(fed, cache, columns - past)
    return logits.float().cpu()
