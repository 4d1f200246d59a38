"""Numbers in the place of NaN and infinity."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState


class RemoveInvalid(LogitsProcessor):
    """Replaces NaN by 0 and +inf by the largest number, so that a faulty model goes on.

    ``l' = 0`` where l is NaN, the largest number of its type where l is +inf, and l elsewhere.

    Without it genkit ends a run in which a model gives NaN, with an error that says so; that is
    nearly always better. -inf is no mistake but a token that is forbidden, and stays. With
    ``minus_infinity: lowest`` it becomes the lowest number, as ``remove_invalid_values`` of
    transformers has it. Then nothing is forbidden any more: a high temperature brings the token
    back, and where all tokens were forbidden all are equally probable.

    >>> from genkit.testing import process
    >>> process(RemoveInvalid(), [1.0, float("nan"), 2.0, -float("inf")])
    [1.0, 0.0, 2.0, -inf]
    """

    type: Literal["remove_invalid"] = "remove_invalid"
    keeps_argmax: ClassVar[bool] = True
    may_allow: ClassVar[bool] = True

    minus_infinity: Literal["keep", "lowest"] = Field(
        "keep", description="-inf stays, or becomes the lowest number of the type"
    )

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The logits without NaN and +inf, `[batch, vocab]`."""
        lowest = -math.inf if self.minus_infinity == "keep" else None
        return logits.nan_to_num(nan=0.0, neginf=lowest)
