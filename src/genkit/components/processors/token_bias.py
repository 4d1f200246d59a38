"""Certain tokens become more likely, or less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor
from genkit.components.processors.bias import Bias
from genkit.components.processors.masks import token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class TokenBias(LogitsProcessor):
    """Adds a number of its own to the logit of each of some tokens.

    ``l'[id] = l[id] + bias[id]``, which multiplies the odds of the token by ``exp(bias)``. A bias
    of -inf forbids the token; in YAML write ``-inf``, or ``null``. No finite bias brings a
    forbidden token back. No biases change nothing. It is `logit_bias` of OpenAI, llama.cpp and
    mlx-lm. Where it stands in the list matters: llama.cpp and mlx-lm add it first of all, SGLang
    after the penalties.

    >>> from genkit.testing import process
    >>> process(TokenBias(biases={0: 2.5, 3: "-inf"}), [1.0, 3.0, 2.0, 2.0])
    [3.5, 3.0, 2.0, -inf]
    """

    type: Literal["token_bias"] = "token_bias"
    may_empty: ClassVar[bool] = True

    biases: dict[int, Bias] = Field(
        description="for a token id what is added to its logit: -1e6 to 1e6, or -inf"
    )

    @field_validator("biases", mode="before")
    @classmethod
    def _each_id_once(cls, value: Any) -> Any:
        # In JSON keys are text; 1 beside "1" would be one id with two biases.
        names = [str(key) for key in value] if isinstance(value, Mapping) else []
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the id {twice[0]} is given twice, as a number and as text")
        return value

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return not self.biases

    def bind(self, run: Run) -> _AddedBias | None:
        """The biases on the run's device; None where there are none.

        Raises:
            InputError: the model does not have one of the ids.
        """
        return None if self.is_neutral else _AddedBias(self, run)


class _AddedBias(Rowless):
    def __init__(self, spec: TokenBias, run: Run) -> None:
        super().__init__(spec.type)
        self.token_ids = token_tensor(spec.type, spec.biases, run)
        biases = [float(spec.biases[token_id]) for token_id in self.token_ids.tolist()]
        self.biases = torch.tensor(biases, dtype=torch.float64, device=run.device)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        biases = self.biases.to(logits.dtype).expand(len(logits), -1)
        return logits.index_add(-1, self.token_ids, biases)
