"""A temperature that falls where the model is certain."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.core.state import GenerationState

COLDEST = 1e-30
"""The lowest temperature. Logits divided by it are still numbers, and only the largest counts."""


class Edt(LogitsProcessor):
    """A temperature that falls where the model is certain.

    ``T = temperature * base ** (theta / H)`` for each row, where H is its entropy in nats: T is
    near `temperature` where the entropy is high, and falls to 0 with it. Unlike that of
    `dynamic_temperature`, T does not depend on how many tokens are allowed. With ``theta = 0`` it
    is a plain temperature. The authors keep the base at 0.8 and choose the other two for each task.
    ("EDT: Improving Large Language Models' Generation by Entropy-based Dynamic Temperature
    Sampling", Zhang, Bao and Huang 2024, arXiv 2403.14541.)

    Four equal tokens have ``H = ln 4 = 1.39``. With a theta as large T is ``2 * 0.8 = 1.6``. Of two
    equal ones H is half of that, and T is ``2 * 0.8 ** 2 = 1.28``:

    >>> from genkit.testing import process
    >>> from math import inf, log
    >>> edt = Edt(temperature=2.0, theta=log(4))
    >>> process(edt, [1.6, 1.6, 1.6, 1.6]), process(edt, [1.6, 1.6, -inf, -inf])
    ([1.0, 1.0, 1.0, 1.0], [1.25, 1.25, -inf, -inf])
    """

    type: Literal["edt"] = "edt"
    keeps_argmax: ClassVar[bool] = True
    acts_on_allowed: ClassVar[bool] = True

    temperature: float = Field(
        gt=0, le=1e30, examples=[1.0], description="T of a row with much entropy"
    )
    theta: float = Field(
        ge=0, examples=[0.5], description="how fast T falls with the entropy, 0 or more"
    )
    base: float = Field(0.8, gt=0, le=1, description="what falls, above 0 to 1")

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """``logits / T``, with a T for each row, `[batch, vocab]`."""
        probs = logits.softmax(-1, dtype=torch.float64)
        entropy = torch.special.entr(probs).sum(-1, keepdim=True).nan_to_num()  # of an empty row
        exponent = self.theta / entropy.clamp(min=COLDEST)  # not 0 / 0
        temperature: torch.Tensor = self.temperature * self.base**exponent
        most = torch.finfo(logits.dtype).max
        scaled = (logits.double() / temperature.clamp(min=COLDEST)).clamp(-most, most)
        return scaled.masked_fill(logits == -torch.inf, -torch.inf).to(logits.dtype)
