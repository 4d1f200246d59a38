"""A temperature that follows the model's own uncertainty."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator

from genkit.components.base import LogitsProcessor
from genkit.components.processors.temperature import COLDEST, first_of_the_largest
from genkit.components.ranking import entropy, probabilities
from genkit.core.run import Run
from genkit.core.state import GenerationState


class DynamicTemperature(LogitsProcessor):
    """Divides the logits by a temperature, the higher the less certain the model is.

    ``T = low + (high - low) * (H / ln n) ** exponent``, where H is the entropy of the row in nats
    and n the number of tokens that are still allowed: ``H / ln n`` is 0 where one token has all the
    mass, and 1 where all have the same. Each row has its own T. Where a single token is allowed
    nothing changes. A T below 1e-30 counts as 0, as in `temperature`: only the most probable token
    stays. Two temperatures of 1 change nothing.

    What is n, and therefore T, depends on what has been cut off before. llama.cpp says ``T`` and
    ``range``, and means ``low = max(0, T - range)``, ``high = T + range``, last in the chain; a
    range of 0 is the plain `temperature`. (Entropy-based dynamic temperature of koboldcpp, 2023.)

    Probabilities 0.5 and 0.5 have the most entropy that two tokens can have, so T = 2:

    >>> from genkit.testing import process
    >>> process(DynamicTemperature(low=0.5, high=2.0), [3.0, 3.0, -float("inf"), -float("inf")])
    [1.5, 1.5, -inf, -inf]
    """

    type: Literal["dynamic_temperature"] = "dynamic_temperature"
    keeps_argmax: ClassVar[bool] = True

    low: float = Field(ge=0, description="the temperature of a certain distribution, 0 or more")
    high: float = Field(ge=0, description="the temperature of a flat distribution, at least `low`")
    exponent: float = Field(
        1.0,
        ge=0,
        description="0 or more: above 1 the temperature stays low longer, below 1 it rises sooner",
    )

    @model_validator(mode="after")
    def _in_order(self) -> DynamicTemperature:
        if self.low > self.high:
            raise ValueError(f"`low` is at most `high`, which is {self.high}")
        return self

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return self.low == self.high == 1

    def bind(self, run: Run) -> DynamicTemperature | None:
        """Nothing to do where both temperatures are 1."""
        return None if self.is_neutral else self

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """``logits / T``, with a T for each row, `[batch, vocab]`."""
        num_allowed = (logits > -torch.inf).sum(-1, keepdim=True)
        uncertainty = entropy(probabilities(logits)) / num_allowed.double().log()
        temperature = self.low + (self.high - self.low) * uncertainty**self.exponent
        divided = logits / temperature.to(logits.dtype)
        cooled = torch.where(temperature < COLDEST, first_of_the_largest(logits), divided)
        return torch.where(num_allowed > 1, cooled, logits)
