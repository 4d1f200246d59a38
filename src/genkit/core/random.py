"""Uniform numbers that depend on nothing but seed, sample, step and purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

# A block of consecutive steps costs as much as one number, so numbers are made by the block.
_BLOCK = 64
# Philox makes four 64-bit words for each value of its counter; a step uses the first.
_WORDS = 4


class RowRandom:
    """Counter-based randomness, one independent stream for each row of a batch.

    A number is a pure function of ``(seed, sample, step, purpose)``: the key of a Philox generator
    (Salmon et al. 2011) is (seed, sample), its counter (step, purpose). A row therefore draws the
    same numbers alone and in any company, on every device, and however many tokens are proposed at
    once. No global generator is read or moved.

    Args:
        seeds: one seed a row, ``0 <= seed < 2**64``.
        samples: which sample of its prompt a row is, counted from 0.
        device: where the numbers are delivered.
    """

    def __init__(
        self, seeds: Sequence[int], samples: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        self.keys = list(zip(seeds, samples, strict=True))
        self.step = 0  # tokens each row has generated so far
        self.device = torch.device(device)
        # purpose -> block, its numbers step by step
        self._blocks: dict[str, tuple[int, Sequence[torch.Tensor]]] = {}

    def uniform(self, purpose: str) -> torch.Tensor:
        """One number in [0, 1) a row, float64 `[batch]`, for the token that is chosen next.

        Asking twice in one step with the same purpose gives the same number.
        """
        block, place = divmod(self.step, _BLOCK)
        held, numbers = self._blocks.get(purpose, (-1, ()))
        if held != block:
            rows = [_numbers(seed, sample, block, purpose) for seed, sample in self.keys]
            numbers = torch.tensor(rows, dtype=torch.float64, device=self.device).unbind(1)
            self._blocks[purpose] = block, numbers
        return numbers[place]

    def advance(self) -> None:
        """Every row has got one more token."""
        self.step += 1

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""
        self.keys = [self.keys[i] for i in indices]
        self._blocks.clear()


def _numbers(seed: int, sample: int, block: int, purpose: str) -> list[float]:
    """The numbers of steps ``block * 64 ... block * 64 + 63``."""
    generator = np.random.Philox(
        key=np.array([seed, sample], dtype=np.uint64),
        counter=np.array([block * _BLOCK, _purpose_word(purpose), 0, 0], dtype=np.uint64),
    )
    words = generator.random_raw(_BLOCK * _WORDS)[::_WORDS]
    numbers: list[float] = ((words >> np.uint64(11)) * 2.0**-53).tolist()  # 53 bits: exact
    return numbers


@lru_cache(maxsize=256)
def _purpose_word(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
