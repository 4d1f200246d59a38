"""Sequences of tokens whose last token gets a bias where a row ends with the others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Literal

import torch

from genkit.components.processors.masks import token_tensor
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState

__all__ = ["BiasedContinuations", "Scope"]

Scope = Literal["all", "output"]
"""Where the beginning of a sequence is looked for: in prompt and answer, or in the answer alone."""


class BiasedContinuations(Rowless):
    """Adds to a token the biases of all sequences that it would complete.

    Only as many tokens are read as the longest sequence has, so that the cost does not grow with
    the text, and there is nothing to remember.

    Args:
        name: of the part.
        biases: what the last token of a sequence gets where a row ends with the tokens before it.
        scope: where those tokens must lie.
        run: the run.

    Raises:
        InputError: the model does not have one of the ids.
    """

    def __init__(
        self, name: str, biases: Mapping[tuple[int, ...], float], scope: Scope, run: Run
    ) -> None:
        super().__init__(name)
        self.scope = scope
        token_tensor(name, (token_id for sequence in biases for token_id in sequence), run)
        sequences = sorted(biases, key=len)
        self.beginnings = [
            torch.tensor([sequence[:-1] for sequence in group], dtype=torch.int64).to(run.device)
            for _, group in groupby(sequences, key=len)
        ]
        self.last_ids = token_tensor(name, {sequence[-1] for sequence in sequences}, run)
        places = {token_id: i for i, token_id in enumerate(self.last_ids.tolist())}
        self.places = torch.tensor([places[each[-1]] for each in sequences]).to(run.device)
        numbers = [biases[sequence] for sequence in sequences]
        self.biases = torch.tensor(numbers, dtype=torch.float64, device=run.device)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        begun = torch.cat([self._begun(state, each) for each in self.beginnings], dim=1)
        sums = self.biases.new_zeros(len(state), len(self.last_ids))
        sums.index_add_(1, self.places, torch.where(begun, self.biases, 0.0))
        return logits.index_add(-1, self.last_ids, sums.to(logits.dtype))

    def _begun(self, state: GenerationState, beginnings: torch.Tensor) -> torch.Tensor:
        """Which rows end with which of these, all equally long: bool `[batch, sequences]`."""
        number, length = beginnings.shape
        if length > state.length:
            return beginnings.new_zeros((len(state), number), dtype=torch.bool)
        ending = state.since(state.length - length).unsqueeze(1)
        where = state.num_tokens if self.scope == "all" else state.num_generated
        return (ending == beginnings).all(-1) & (where >= length).unsqueeze(-1)
