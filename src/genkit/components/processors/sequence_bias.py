"""Certain sequences of tokens become more likely, or less."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor
from genkit.components.processors.bias import Bias
from genkit.components.processors.continuations import BiasedContinuations
from genkit.components.processors.nested_options import NestedOptions
from genkit.core.run import Run


class BiasedSequence(NestedOptions):
    """A sequence of tokens, and what its last token gets where the others stand before it."""

    token_ids: tuple[int, ...] = Field(min_length=1, description="the sequence")
    bias: Bias = Field(description="what is added to the logit: -1e6 to 1e6, or -inf")


class SequenceBias(LogitsProcessor):
    """Adds a number to the logit of a token that would complete one of some sequences.

    Where prompt and answer together end with all tokens of a sequence but the last, the last one
    gets the bias: ``l'[id] = l[id] + sum of biases``. A sequence of one token always matches. A
    token that would complete several sequences gets the sum of their biases; -inf forbids it. A
    sequence longer than the row matches nothing, and padding is never matched. (transformers.)

    Giving the same sequence twice is an error: transformers lets the last one count, which reads
    like a sum and is none.

    >>> from genkit.testing import process
    >>> part = SequenceBias(sequences=[
    ...     {"token_ids": [3], "bias": 1.0}, {"token_ids": [2, 3], "bias": 0.5}])
    >>> process(part, [0.0, 0.0, 0.0, 0.0], prompt=[0, 2])
    [0.0, 0.0, 0.0, 1.5]
    """

    type: Literal["sequence_bias"] = "sequence_bias"
    may_empty: ClassVar[bool] = True

    sequences: tuple[BiasedSequence, ...] = Field(
        description="a list of {token_ids: [...], bias: ...}"
    )

    @field_validator("sequences")
    @classmethod
    def _each_once(cls, value: tuple[BiasedSequence, ...]) -> tuple[BiasedSequence, ...]:
        seen: set[tuple[int, ...]] = set()
        for sequence in value:
            if sequence.token_ids in seen:
                raise ValueError(
                    f"the sequence {list(sequence.token_ids)} is given twice; give it once, with "
                    "the bias that it is to have"
                )
            seen.add(sequence.token_ids)
        return value

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with these options."""
        return not self.sequences

    def bind(self, run: Run) -> BiasedContinuations | None:
        """Compares with the end of each row; None where there are no sequences.

        Raises:
            InputError: the model does not have one of the ids.
        """
        biases = {each.token_ids: float(each.bias) for each in self.sequences}
        return BiasedContinuations(self.type, biases, "all", run) if biases else None
