"""Token after token: the textbook loop as a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from genkit.components.base import Decoder
from genkit.core import contracts
from genkit.core.loop import autoregressive
from genkit.core.result import Steps
from genkit.core.state import GenerationState

__all__ = ["Autoregressive"]


class Autoregressive(Decoder):
    """One token a row and step, drawn from the model's distribution given all before."""

    type: Literal["autoregressive"] = "autoregressive"

    def __call__(
        self,
        model: contracts.Model,
        manager: contracts.CacheManager,
        processors: Sequence[contracts.LogitsProcessor],
        sampler: contracts.Sampler,
        stop_criteria: Sequence[contracts.StopCriterion],
        state: GenerationState,
    ) -> Steps:
        """`genkit.core.loop.autoregressive`."""
        return autoregressive(model, manager, processors, sampler, stop_criteria, state)
