"""A model that says what it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch

from genkit.core.contracts import CAPABILITIES, Layer
from genkit.core.state import GenerationState
from genkit.text.tokenizer import Tokenizer


class ScriptedModel:
    """Gives the logits you list, step by step; after the last it repeats it.

    Args:
        logits: ``[step][vocab]``, the same for every row, or ``[row][step][vocab]``, a script for
            each row of the caller's batch.
        eos_token_ids: ids that end a text.
        context_length: the most tokens of a row.
        tokenizer: by default none.
        supports: what the model claims to support; by default everything.
        device: where the logits are given.

    Attributes:
        num_calls: how often the model was called.
        fed: the `input_ids` of every call.
    """

    def __init__(
        self,
        logits: Any,
        *,
        eos_token_ids: Iterable[int] = (),
        context_length: int | None = 4096,
        tokenizer: Tokenizer | None = None,
        supports: Iterable[str] = tuple(CAPABILITIES),
        device: torch.device | str = "cpu",
    ) -> None:
        self.script = torch.as_tensor(logits, dtype=torch.float32, device=device)
        if self.script.ndim not in (2, 3):
            raise ValueError(
                "logits are [step][vocab] or [row][step][vocab], found "
                f"{self.script.ndim} dimensions"
            )
        self.vocab_size = self.script.shape[-1]
        self.eos_token_ids = frozenset(eos_token_ids)
        self.context_length = context_length
        self.tokenizer = tokenizer
        self.supports = frozenset(supports)
        self.device = self.script.device
        self.fed: list[torch.Tensor] = []

    @classmethod
    def of_ids(
        cls, token_ids: Sequence[int], vocab_size: int, *, margin: float = 10.0, **options: Any
    ) -> Self:
        """A model that prefers these ids, one a step, by `margin` over all others."""
        ids = torch.tensor(list(token_ids))
        return cls(margin * torch.nn.functional.one_hot(ids, vocab_size), **options)

    @property
    def num_calls(self) -> int:
        """How often the model was called."""
        return len(self.fed)

    def new_cache(self, state: GenerationState) -> ScriptedCache:
        """A cache that knows which rows it serves and where their answers begin."""
        return ScriptedCache(state, self.supports)

    def new_static_cache(self, state: GenerationState) -> ScriptedCache:
        """The same: there is nothing to take memory for."""
        return self.new_cache(state)

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        """The logits of the step that follows the columns fed, `[batch, vocab]`."""
        return self.last(input_ids, cache, 1)[:, 0]

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        """The logits after each of the last `n` columns fed, `[batch, n, vocab]`."""
        self.fed.append(input_ids.clone())
        cache.open()
        end = cache.length + input_ids.shape[1] - cache.prompt_end
        steps = torch.arange(end - n + 1, end + 1).clamp(0, self.script.shape[-2] - 1)
        rows = cache.rows.to(self.device)
        of_row = (
            self.script[rows] if self.script.ndim == 3 else self.script.expand(len(rows), -1, -1)
        )
        logits = of_row[:, steps]
        cache.advance(input_ids.shape[1])
        return logits  # indexing has made a copy


class ScriptedCache:
    """Counts columns; there is nothing else to remember.

    See `genkit.core.contracts.LayeredCache`.
    """

    def __init__(self, state: GenerationState, supports: frozenset[str]) -> None:
        self.length = 0
        self.starts = state.starts
        self.supports = supports
        self.rows = state.rows
        self.prompt_end = int(state.prompt_ends[0])

    @property
    def layers(self) -> list[Layer]:
        """There are none."""
        return []

    @property
    def num_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def open(self) -> None:
        """Nothing to do."""

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """There is no layer to put anything into."""
        raise IndexError(f"there is no layer {i}")

    def advance(self, n: int) -> None:
        """Count."""
        self.length += n

    def crop(self, length: int) -> None:
        """Count back."""
        self.length = length

    def reorder(self, indices: Sequence[int]) -> None:
        """Follow the rows."""
        index = torch.tensor(indices)
        self.rows = self.rows[index]
        self.starts = self.starts[index.to(self.starts.device)]
