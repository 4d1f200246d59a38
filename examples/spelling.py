"""A plugin in a single file: `genkit generate ... --plugin examples/spelling.py`.

It brings a processor that forbids tokens by their spelling, and a stop criterion.
"""

import math
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import LogitsProcessor, StopCriterion
from genkit.plugins import hookimpl


class WithoutLetter(LogitsProcessor):
    """Forbids every token whose text contains a letter, as in the novels of the Oulipo."""

    type: Literal["without_letter"] = "without_letter"

    letter: str = Field(min_length=1, max_length=1, description="the letter to do without")

    def bind(self, run):
        """Find the tokens once a run."""
        letter, decode = self.letter.lower(), run.tokenizer.decode
        ids = [i for i in range(run.tokenizer.vocab_size) if letter in decode([i]).lower()]
        forbidden = torch.zeros(run.vocab_size, dtype=torch.bool, device=run.device)
        forbidden[ids] = True
        return Forbid(forbidden)


class Forbid:
    """Sets some tokens to -inf. It holds nothing of a row."""

    def __init__(self, forbidden):
        """Remember the tokens, bool `[vocab]`."""
        self.forbidden = forbidden

    def __call__(self, state, logits):
        """The logits without them."""
        return logits.masked_fill(self.forbidden, -math.inf)

    def reorder(self, indices):
        """Nothing to do when rows leave."""


class EvenLength(StopCriterion):
    """Ends a row once it has generated an even number of tokens, at least `at_least`."""

    type: Literal["even_length"] = "even_length"

    at_least: int = Field(2, ge=2, description="the fewest tokens to generate")

    def __call__(self, state):
        """True where the count is even, bool `[batch]`."""
        return (state.num_generated % 2 == 0) & (state.num_generated >= self.at_least)


@hookimpl
def genkit_register_logits_processors():
    """The processor of this file."""
    return [WithoutLetter]


@hookimpl
def genkit_register_stop_criteria():
    """The stop criterion of this file."""
    return [EvenLength]
