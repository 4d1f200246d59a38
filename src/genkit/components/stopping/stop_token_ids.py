"""Certain tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.components.stopping.token_match import TokenMatch
from genkit.core.run import Run


class StopTokenIds(StopCriterion):
    """Ends a row at one of the given tokens, whose text is kept unless it is a special token."""

    type: Literal["stop_token_ids"] = "stop_token_ids"

    token_ids: tuple[int, ...] = Field(min_length=1, description="ids that end a row")

    def bind(self, run: Run) -> TokenMatch:
        """Compares with the given tokens, which the model must have."""
        return TokenMatch(self.name, self.token_ids, run)
