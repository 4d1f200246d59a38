"""A case that laws are tried on."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

Prompt = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Some prompts, and everything else that a law needs to choose.

    Attributes:
        prompts: the ids of each row's prompt; none is empty.
        seeds: one for each prompt.
        num_tokens: the most tokens that a row generates.
        choice: decides whatever else a law varies: orders, cuts, pads.
    """

    prompts: tuple[Prompt, ...]
    seeds: tuple[int, ...]
    num_tokens: int
    choice: int = 0

    def random(self) -> random.Random:
        """Where a law's choices come from: the same at each call."""
        return random.Random(self.choice)

    def of_equal_lengths(self) -> Case:
        """The same case with every prompt cut, from the left, to the length of the shortest."""
        shortest = min(map(len, self.prompts))
        return replace(self, prompts=tuple(prompt[-shortest:] for prompt in self.prompts))
