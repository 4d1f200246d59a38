"""The model's end tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from genkit.components.base import StopCriterion
from genkit.components.stopping.token_match import TokenMatch
from genkit.core.run import Run


class Eos(StopCriterion):
    """Ends a row at a token that ends texts.

    By default every end token that the model's files name. A model that names none is never ended
    by it. To go on past the end token, leave the criterion out. The end token belongs to the row's
    ids and gives no text; nothing is appended to a row that has ended. (Every engine; vLLM and
    llama.cpp leave it out with `ignore_eos`.)

    Errors: an id that the model does not have.

    >>> from genkit.testing import ending
    >>> ending(Eos(), [5, 6, 2, 7], eos=[2])
    3
    >>> ending(Eos(token_ids=[7]), [5, 6, 2, 7], eos=[2])
    4
    """

    type: Literal["eos"] = "eos"

    token_ids: tuple[int, ...] | None = Field(
        None, min_length=1, description="end tokens in place of the model's own"
    )

    def bind(self, run: Run) -> TokenMatch | None:
        """Compares with the model's end tokens; None where it has none."""
        token_ids = sorted(run.eos_token_ids) if self.token_ids is None else self.token_ids
        return TokenMatch(self.name, token_ids, run) if token_ids else None
