"""The only tokens that may be chosen."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.components.processors.masks import token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState


class AllowedTokens(LogitsProcessor):
    """Forbids all tokens but certain ones, in every step.

    ``l'[id] = l[id]`` for the listed ids and -inf for all others. A listed token that is forbidden
    already stays so. End tokens are allowed only if they are listed. It is `allowed_token_ids` of
    vLLM, which applies it before anything else.

    >>> from genkit.testing import process
    >>> process(AllowedTokens(token_ids=[0, 2]), [1.0, 3.0, 2.0, 2.0])
    [1.0, -inf, 2.0, -inf]
    """

    type: Literal["allowed_tokens"] = "allowed_tokens"
    may_empty: ClassVar[bool] = True

    token_ids: tuple[int, ...] = Field(min_length=1, description="the only ids, at least one")

    def bind(self, run: Run) -> _Allowed:
        """The ids on the run's device.

        Raises:
            InputError: the model does not have one of the ids.
        """
        return _Allowed(self, run)


class _Allowed(Rowless):
    def __init__(self, spec: AllowedTokens, run: Run) -> None:
        super().__init__(spec.type)
        self.token_ids = token_tensor(spec.type, spec.token_ids, run)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        allowed = logits.index_select(-1, self.token_ids)
        return torch.full_like(logits, -math.inf).index_copy_(-1, self.token_ids, allowed)
