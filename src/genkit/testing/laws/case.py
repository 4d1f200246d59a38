"""A case that laws are tried on."""

from __future__ import annotations

import random
from collections.abc import Iterator
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

    def of_one_row(self) -> Case:
        """The first row alone."""
        return replace(self, prompts=self.prompts[:1], seeds=self.seeds[:1])

    def smaller(self) -> Iterator[Case]:
        """Cases with a row, a part of a prompt or some tokens less, the smallest of each first."""
        for row in range(len(self.prompts) if len(self.prompts) > 1 else 0):
            yield replace(
                self,
                prompts=self.prompts[:row] + self.prompts[row + 1 :],
                seeds=self.seeds[:row] + self.seeds[row + 1 :],
            )
        for row, prompt in enumerate(self.prompts):
            for length in _below(len(prompt)):
                cut = (prompt[-length:],)
                yield replace(self, prompts=self.prompts[:row] + cut + self.prompts[row + 1 :])
        for num_tokens in _below(self.num_tokens):
            yield replace(self, num_tokens=num_tokens)


def _below(count: int) -> list[int]:
    """Some numbers from 1 to `count - 1`: they halve the distance to `count` each time."""
    numbers = []
    distance = count - 1
    while distance:
        numbers.append(count - distance)
        distance //= 2
    return numbers
