"""A time."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.components.rowless import Rowless
from genkit.core.run import Clock, Run
from genkit.core.state import GenerationState


class TimeLimit(StopCriterion):
    """Ends all rows after that many seconds, counted from the first prefill on.

    Rows that are decoded one after the other share the time. The finish reason is `time`. A token
    that has begun is finished, so that a run takes longer by up to one token. (`max_time` in
    transformers.)

    >>> from genkit.testing import ending
    >>> ending(TimeLimit(seconds=3600), [5, 6, 7, 8]) is None
    True
    >>> ending(TimeLimit(seconds=1e-9), [5, 6, 7, 8])
    1
    """

    type: Literal["time_limit"] = "time_limit"
    finish_reason: ClassVar[str] = "time"

    seconds: float = Field(gt=0, description="seconds of wall-clock time")

    def bind(self, run: Run) -> _Deadline:
        """Looks at the run's clock."""
        return _Deadline(self.name, self.seconds, run.clock)


class _Deadline(Rowless):
    """Compares with the clock, which goes on whatever tokens are taken back."""

    finish_reason = "time"

    def __init__(self, name: str, seconds: float, clock: Clock) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.clock = clock

    def __call__(self, state: GenerationState) -> torch.Tensor:
        return state.finished if self.clock.seconds() < self.seconds else ~state.finished
