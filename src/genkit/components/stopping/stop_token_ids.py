"""Certain tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.components.stopping.token_match import TokenMatch
from genkit.core.run import Run


class StopTokenIds(StopCriterion):
    """Ends a row at one of the given tokens.

    Its text is kept unless it is a special token. (`stop_token_ids` of vLLM and SGLang, a list as
    `eos_token_id` in transformers.)

    Errors: an id that the model does not have.

    >>> from genkit.testing import ending
    >>> ending(StopTokenIds(token_ids=[6, 9]), [5, 9, 6, 7])
    2
    """

    type: Literal["stop_token_ids"] = "stop_token_ids"

    token_ids: tuple[int, ...] = Field(min_length=1, description="ids that end a row")

    def bind(self, run: Run) -> TokenMatch:
        """Compares with the given tokens, which the model must have."""
        return TokenMatch(self.name, self.token_ids, run)
