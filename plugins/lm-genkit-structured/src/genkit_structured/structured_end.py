"""The end of answers of a given form."""

from __future__ import annotations

from typing import Literal

import torch

from genkit.components.base import StopCriterion
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit_structured.grammar import Grammar
from genkit_structured.matchers import Matchers


class StructuredEnd(Grammar, StopCriterion):
    """Ends a row with the token that completes its answer.

    That is the first token after which the grammar knows no other text, as after the last brace of
    a JSON object, or an end token of the model where the grammar may end. What might still go on,
    as a number might, is ended by the model. It saves the step in which only an end token is
    allowed, and is what ends an answer of a model that has no end token.

    Its options are those of `structured`, and have to say the same. It follows the answer with a
    matcher of its own, which costs less than 0.1 ms a token. A row that leaves the grammar is not
    ended by it.
    """

    type: Literal["structured_end"] = "structured_end"

    def bind(self, run: Run) -> _Complete:
        """A matcher for each row.

        Raises:
            UnsupportedError: the model has no tokenizer, or one that llguidance cannot use.
            OptionError: the grammar is refused.
        """
        return _Complete(self.type, self.row_matchers(run))


class _Complete(Matchers):
    def __call__(self, state: GenerationState) -> torch.Tensor:
        self.look(state)
        return torch.tensor([row.has_ended for row in self.rows], device=state.device)
