"""Answers of a given form."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
import torch

from genkit.components.base import LogitsProcessor
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import EmptyRowError
from genkit_structured.grammar import Grammar
from genkit_structured.matchers import Matchers


class Structured(Grammar, LogitsProcessor):
    """Forbids every token with which the answer could not keep its form.

    The form is given by exactly one of `json_schema`, `regex`, `choices` and `lark`. With g the
    tokens generated so far, a token t stays allowed iff the bytes of g and t together begin a text
    of the grammar, and an end token of the model iff the bytes of g are one. Where the next bytes
    are certain, t must also be the token with which the tokenizer itself begins them. After an end
    token only end tokens are allowed. The prompt is no part of the text, special tokens are never
    part of it, and a token may end within a character. Logits of allowed tokens are not changed,
    and what another part has forbidden stays forbidden.

    JSON has at most `blanks` blanks or line breaks in a row between its parts, and none around it.

    What llguidance refuses is an `OptionError`, and a model without tokenizer an
    `UnsupportedError`, before the first token. Later a row can fail where nothing may follow: with
    `EmptyRowError` after a token that another part has forced, or where the answer is complete and
    the model has no end token; with `PartError` where the vocabulary lacks a byte, or a grammar
    reaches a limit of llguidance.

    (Willard & Louf 2023, "Efficient Guided Generation for Large Language Models"; by way of
    llguidance, which follows a grammar with the parser of Earley 1970 and derivatives of regular
    expressions, Brzozowski 1964.)
    """

    type: Literal["structured"] = "structured"
    may_empty: ClassVar[bool] = True

    def bind(self, run: Run) -> _Mask:
        """A matcher for each row.

        Raises:
            UnsupportedError: the model has no tokenizer, or one that llguidance cannot use.
            OptionError: the grammar is refused.
        """
        return _Mask(self.type, self.row_matchers(run))


class _Mask(Matchers):
    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self.look(state)
        allowed = np.zeros(logits.shape, np.bool_)
        for i, row in enumerate(self.rows):
            row.allow(allowed[i])
            if row.has_ended and not row.vocabulary.end_ids:
                raise EmptyRowError(
                    f"row {state.rows[i]}, step {state.num_generated[i]}: the answer of "
                    f"{self.name!r} is complete, and the model has no end token; add the stop "
                    "criterion 'structured_end'"
                )
        return logits.masked_fill(torch.from_numpy(~allowed).to(logits.device), -math.inf)
