"""A part in a run of its own, without a model."""

from __future__ import annotations

from typing import Any

from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState


def bound(part: Any, vocab_size: int, rows: int = 1, *, purpose: str) -> tuple[Any, Any]:
    """A part bound for rows whose prompt is the token 0, and the state of their first step.

    Args:
        part: the component.
        vocab_size: of the model.
        rows: how many; row i has the seed i.
        purpose: of the part's draws.
    """
    run = Run(
        prompts=((0,),) * rows,
        seeds=tuple(range(rows)),
        samples=(0,) * rows,
        limits=(10**6,) * rows,
        rows=tuple(range(rows)),
        vocab_size=vocab_size,
        purpose=purpose,
    )
    state = GenerationState(run.prompts, run.limits, RowRandom(run.seeds, run.samples))
    return part.bind(run), state
