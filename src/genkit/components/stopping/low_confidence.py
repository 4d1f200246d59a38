"""A model that no longer knows how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.components.trail import Trail
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import PartError


class LowConfidence(StopCriterion):
    """Ends a row when the model's largest probability stays below a threshold.

    It is the softmax of the logits that the model itself gave, before any processor, that is looked
    at: how sure the model was, whichever token was chosen. The row ends when its largest value has
    been below `threshold` for `patience` tokens in a row, the last of them included. The report
    gives that value of the last token.

    transformers lets the assistant model of assisted generation stop drafting in this way, where
    it has chosen a token with a probability below 0.4.

    The largest probabilities are 0.7, 0.3 and 0.3:

    >>> from math import log
    >>> from genkit.testing import ending
    >>> sure = [log(0.7), log(0.1), log(0.1), log(0.1)]
    >>> unsure = [log(0.3), log(0.3), log(0.2), log(0.2)]
    >>> ending(LowConfidence(patience=2), [0, 1, 0], logits=[sure, unsure, unsure])
    3
    """

    type: Literal["low_confidence"] = "low_confidence"

    threshold: float = Field(0.4, gt=0, le=1, description="a probability, above 0 and at most 1")
    patience: int = Field(1, ge=1, description="how many tokens in a row, at least 1")

    def bind(self, run: Run) -> _Confidence:
        """Counts unsure tokens for each row."""
        return _Confidence(self, run)


class _Confidence:
    def __init__(self, spec: LowConfidence, run: Run) -> None:
        self.name = spec.name
        self.threshold = spec.threshold
        self.patience = spec.patience
        first = torch.zeros((len(run), 1), dtype=torch.int64, device=run.device)
        self.num_unsure = Trail(first)  # tokens in a row
        self.probs = first.double()

    def __call__(self, state: GenerationState) -> torch.Tensor:
        if state.last_logits is None:
            raise PartError(
                f"{self.name} needs the model's logits, and the decoder of this run does not give "
                "them to the state: `state.append(ids, logits)`"
            )
        self.probs = state.last_logits.softmax(-1, dtype=torch.float64).amax(-1, keepdim=True)
        self.num_unsure.push((self.num_unsure.last + 1) * (self.probs < self.threshold))
        return self.num_unsure.last.squeeze(-1) >= self.patience

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        return {"matched": float(self.probs[i]), "position": len(state.generated_row(i)) - 1}

    def reorder(self, indices: Sequence[int]) -> None:
        self.num_unsure.reorder(indices)
        self.probs = self.probs[torch.tensor(indices, device=self.probs.device)]

    def rewind(self, n: int) -> None:
        self.num_unsure.rewind(n)
