"""The facts of one run, as its parts see them when they are bound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from genkit.text.tokenizer import Tokenizer


class Clock:
    """Seconds since it was started; 0 before that."""

    def __init__(self) -> None:
        self._began: float | None = None

    def start(self) -> None:
        """Begin to count, unless it has begun already."""
        if self._began is None:
            self._began = time.monotonic()

    def seconds(self) -> float:
        """How long it has been running."""
        return 0.0 if self._began is None else time.monotonic() - self._began


@dataclass(frozen=True)
class Run:
    """One call of a pipeline, or the rows of it that are decoded together.

    Attributes:
        prompts: the prompt of each row, as token ids.
        seeds, samples: what each row draws from.
        limits: the most tokens each row may reach, its prompt included.
        rows: the index of each row in the caller's batch.
        tokenizer: the model's own unless another was given; None if there is none.
        vocab_size, eos_token_ids, context_length, device: the model's facts.
        clock: the time since the first prefill; rows that are decoded one after the other share it.
        purpose: names the draws of the part that is being bound: its type and its ordinal among
            the parts of that type, so that adding another part moves no draw.
    """

    prompts: tuple[tuple[int, ...], ...]
    seeds: tuple[int, ...]
    samples: tuple[int, ...]
    limits: tuple[int, ...]
    rows: tuple[int, ...]
    vocab_size: int
    eos_token_ids: frozenset[int] = frozenset()
    context_length: int | None = None
    device: torch.device = torch.device("cpu")
    tokenizer: Tokenizer | None = None
    clock: Clock = field(default_factory=lambda: Clock())
    purpose: str = "sampler"

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.prompts)

    def select(self, indices: Sequence[int]) -> Run:
        """The run of some of these rows."""
        return replace(
            self,
            prompts=tuple(self.prompts[i] for i in indices),
            seeds=tuple(self.seeds[i] for i in indices),
            samples=tuple(self.samples[i] for i in indices),
            limits=tuple(self.limits[i] for i in indices),
            rows=tuple(self.rows[i] for i in indices),
        )

    def for_part(self, purpose: str) -> Run:
        """The same run, as the part with this purpose sees it."""
        return replace(self, purpose=purpose)
