"""The watermark of Kirchenbauer et al.: green tokens, which the tokens before them choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field

from genkit.components.processors.bias import LARGEST_BIAS
from genkit.components.processors.nested_options import NestedOptions
from genkit.components.processors.top_k import TopK
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState

_TABLE_SIZE = 1_000_003
_MOST_PROBABLE = TopK(k=40)  # the tokens that `selfhash` looks at


class GreenList(NestedOptions):
    """A share of the vocabulary, another one after every context, gets a bias.

    A hash of the last tokens seeds a shuffle of the vocabulary; its first ``int(V * ratio)`` ids
    are green. With `lefthash` the last token decides. With `selfhash` the last ``context_width -
    1`` tokens and the candidate itself do, and only the 40 most probable tokens are tried, each
    with a shuffle of its own, which is slow. A row with fewer than `context_width` tokens is left
    as it is. Shuffles are made on the CPU, so that every device has the same green tokens.
    """

    type: Literal["green_list"] = "green_list"
    ratio: float = Field(0.25, gt=0, lt=1, description="the share of green tokens, 0 to 1")
    bias: float = Field(
        2.0, ge=-LARGEST_BIAS, le=LARGEST_BIAS, description="what a green token's logit gets"
    )
    hashing_key: int = Field(15485863, ge=0, lt=2**63, description="the secret, 0 to 2**63 - 1")
    seeding: Literal["lefthash", "selfhash"] = Field(
        "lefthash",
        description="what chooses the green tokens: the last token, or the candidate as well",
    )
    context_width: int = Field(1, ge=1, description="how many tokens are hashed, at least 1")

    def bind(self, run: Run) -> _GreenList | None:
        """The green tokens of a run; None where there are none, or the bias is 0."""
        return _GreenList(self, run) if self.bias and int(run.vocab_size * self.ratio) else None


class _GreenList(Rowless):
    def __init__(self, scheme: GreenList, run: Run) -> None:
        super().__init__("watermark")
        self.scheme = scheme
        self.vocab_size = run.vocab_size
        self.num_green = int(run.vocab_size * scheme.ratio)
        self.generator = torch.Generator()

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        width = self.scheme.context_width
        if state.length < width:
            return logits
        contexts = state.since(state.length - width).tolist()
        long_enough = [i for i in range(len(state)) if len(state.row(i)) >= width]
        green = torch.zeros(logits.shape, dtype=torch.bool)
        if self.scheme.seeding == "lefthash":
            for i in long_enough:
                green[i, self._green_after(self.scheme.hashing_key * contexts[i][-1])] = True
        else:
            candidates = _MOST_PROBABLE(state, logits).isfinite().cpu()
            for i in long_enough:
                ids = candidates[i].nonzero()[:, 0].tolist()
                green[i, self._green_themselves(contexts[i][1:], ids)] = True
        return torch.where(green.to(logits.device), logits + self.scheme.bias, logits)

    def _green_after(self, seed: int) -> torch.Tensor:
        self.generator.manual_seed(seed % (2**64 - 1))
        return torch.randperm(self.vocab_size, generator=self.generator)[: self.num_green]

    def _green_themselves(self, before: Sequence[int], candidates: Sequence[int]) -> list[int]:
        """The candidates that are green after the hash which they belong to."""
        table = _hashes(self.scheme.hashing_key)
        green = []
        for candidate in candidates:
            own = table[candidate % _TABLE_SIZE]
            hashes = table[torch.tensor([*before, candidate]) % _TABLE_SIZE]
            # In 64 bits, where the product may wrap around, as it does in transformers.
            seed = int((self.scheme.hashing_key * hashes * own).min())
            if candidate in self._green_after(seed):
                green.append(candidate)
        return green


@lru_cache(maxsize=4)
def _hashes(key: int) -> torch.Tensor:
    """A number for every token id, from 1 on, int64 `[table]`."""
    return torch.randperm(_TABLE_SIZE, generator=torch.Generator().manual_seed(key)) + 1
