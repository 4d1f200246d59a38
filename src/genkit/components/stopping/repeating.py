"""A text that goes round in circles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from genkit.components.base import StopCriterion
from genkit.core.run import Run
from genkit.core.state import GenerationState


class Repeating(StopCriterion):
    """Ends a row whose last tokens are the same block several times in a row.

    The block may have from `min_period` to `max_period` tokens, all of them generated ones; it has
    come `times` times, one directly after the other. ``5 7 5 7 5 7`` is a block of two tokens three
    times. Nothing is cut; the report gives the shortest such block and where the first of them
    begins. Some texts repeat for good reason, such as lines of dashes and tables of zeros: raise
    `min_period` or `times` where they may come.

    vLLM has it, as max_pattern_size, min_pattern_size and min_count.

    Errors: a `min_period` above `max_period`.

    >>> from genkit.testing import ending
    >>> ending(Repeating(max_period=2, times=2), [5, 7, 5, 7, 5])
    4
    """

    type: Literal["repeating"] = "repeating"

    max_period: int = Field(ge=1, le=1024, description="the longest block, in tokens")
    times: int = Field(ge=2, lt=2**31, description="how often the block has come, at least 2")
    min_period: int = Field(1, ge=1, description="the shortest block, in tokens")

    @model_validator(mode="after")
    def _some_period(self) -> Self:
        if self.min_period > self.max_period:
            raise ValueError(
                f"min_period {self.min_period} is above max_period {self.max_period}, so that no "
                "block would do"
            )
        return self

    def bind(self, run: Run) -> _Repetition:
        """Counts for each row and period."""
        return _Repetition(self, run)


class _Repetition:
    """How many tokens in a row are the same as that many tokens before.

    A block of p tokens has come n times when the last ``(n - 1) p`` tokens are the same as those p
    before them.
    """

    def __init__(self, spec: Repeating, run: Run) -> None:
        self.name = spec.name
        self.spec = spec
        self.periods = torch.arange(spec.min_period, spec.max_period + 1, device=run.device)
        self.runs = self.periods.new_zeros((len(run), len(self.periods)))
        self.length: int | None = None  # columns looked at

    def __call__(self, state: GenerationState) -> torch.Tensor:
        first = state.length - state.most_generated
        for column in range(max(first, self.length or first), state.length):
            self._look(state, column, first)
        self.length = state.length
        return (self.runs >= (self.spec.times - 1) * self.periods).any(-1)

    def _look(self, state: GenerationState, column: int, first: int) -> None:
        """Compare a token with those before it."""
        lowest, highest = self.spec.min_period, min(self.spec.max_period, column - first)
        count = highest - lowest + 1
        if count <= 0:
            return
        before = state.token_ids[:, column - highest : column - lowest + 1].flip(-1)
        equal = before == state.token_ids[:, column : column + 1]
        equal &= self.periods[:count] <= column - state.prompt_ends.unsqueeze(-1)
        self.runs[:, :count] = (self.runs[:, :count] + 1) * equal

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        ids, times = state.generated_row(i).tolist(), self.spec.times
        for period in range(self.spec.min_period, self.spec.max_period + 1):
            begin = len(ids) - period * times
            block = ids[begin : begin + period]
            if begin >= 0 and ids[begin:] == block * times:
                return {"matched": block, "position": begin}
        raise AssertionError("asked only for rows that this criterion has ended")

    def reorder(self, indices: Sequence[int]) -> None:
        self.runs = self.runs[torch.tensor(indices, device=self.runs.device)]

    def rewind(self, n: int) -> None:
        """Count again, at the next step, as far back as a count can matter."""
        if self.length is not None:
            self.length = max(0, self.length - n - self.spec.max_period * self.spec.times)
            self.runs.zero_()
