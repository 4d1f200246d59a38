"""Long answers become more and more likely to end."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import end_tokens
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState

# Growth stops here: the end is certain long before, and no logit becomes infinite, not even under a
# low temperature.
_MOST_WEIGHT = 1e12


class LengthDecay(LogitsProcessor):
    """Raises the end tokens more with every token, from a number of them on.

    With n tokens more than `start` generated, ``l'[end] = l[end] + |l[end]| * (factor^n - 1)`` for
    n > 0. A factor of 1 changes nothing, one below 1 makes the end less likely. A logit of 0 stays
    as it is, and so does an end token that is forbidden. The weight of ``|l|`` is at most 1e12.
    Every row counts its own tokens, not those of its prompt. Without an end token nothing changes.
    (`exponential_decay_length_penalty` of transformers.)

    >>> from genkit.testing import process
    >>> part = LengthDecay(start=1, factor=1.5)
    >>> process(part, [1.0, 3.0, 2.0, 2.0], eos=[2], generated=[0, 0, 0])
    [1.0, 3.0, 4.5, 2.0]
    """

    type: Literal["length_decay"] = "length_decay"

    start: int = Field(ge=0, description="how many generated tokens have no effect, at least 0")
    factor: float = Field(gt=0, description="above 1 brings the end nearer, above 0")
    token_ids: tuple[int, ...] | None = Field(
        None, min_length=1, description="end tokens in place of the model's own"
    )

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.factor == 1

    def bind(self, run: Run) -> _Decay | None:
        """The end tokens on the run's device; None where the factor is 1 or there is none.

        Raises:
            InputError: the model does not have one of the ids.
        """
        bound = _Decay(self, run)
        return None if self.is_neutral or not len(bound.end_ids) else bound


class _Decay(Rowless):
    def __init__(self, spec: LengthDecay, run: Run) -> None:
        super().__init__(spec.type)
        self.start = spec.start
        self.factor = torch.tensor(spec.factor, dtype=torch.float64, device=run.device)
        self.end_ids = end_tokens(spec.type, run, instead=spec.token_ids)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        if state.most_generated <= self.start:
            return logits
        surplus = (state.num_generated - self.start).clamp(min=0)
        weight = (self.factor**surplus - 1).clamp(max=_MOST_WEIGHT).unsqueeze(-1)
        ends = logits.index_select(-1, self.end_ids)
        raised = ends + ends.abs() * weight.to(logits.dtype)
        return logits.index_copy(-1, self.end_ids, torch.where(ends.isfinite(), raised, ends))
