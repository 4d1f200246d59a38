"""The watermark SynthID: a tournament of hashed bits, which leaves the distribution as it is."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch.nn.functional import pad

from genkit.components.processors.nested_options import NestedOptions
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState

_MULTIPLIER = 6364136223846793005  # of a linear congruential generator, as musl has it

Key = Annotated[int, Field(ge=0, lt=2**63)]


class SynthID(NestedOptions):
    """Each key gives every token a bit, by a hash of the tokens before it, and bits of 1 win.

    For one key after the other, ``p' = p * (1 + g - sum(g * p))`` with g the bits. Over all keys
    that could be, the mean of p' is p. The hash covers the last ``ngram_len - 1`` generated tokens,
    with zeros before the first; the prompt is not hashed. A context that was there already, among
    the last `context_history_size` of the row, is not marked again. Logits that are marked become
    log-probabilities. The bits come from a table made on the CPU, the same for every device.
    """

    type: Literal["synthid"] = "synthid"
    keys: tuple[Key, ...] = Field(
        min_length=1, description="the secret: a number for each round, 0 to 2**63 - 1"
    )
    ngram_len: int = Field(5, ge=2, description="tokens that are hashed, the new one included")
    sampling_table_size: int = Field(
        2**16, ge=1, le=2**24, description="how many bits the hash chooses from, 1 to 2**24"
    )
    sampling_table_seed: int = Field(0, ge=0, lt=2**63, description="the seed of these bits")
    context_history_size: int = Field(
        1024, ge=0, description="in how many contexts repetition is looked for; 0: in none"
    )
    skip_first_ngram_calls: bool = Field(
        False, description="leave the first `ngram_len - 1` tokens of an answer unmarked"
    )

    def bind(self, run: Run) -> _SynthID:
        """The table on the run's device."""
        return _SynthID(self, run)


class _SynthID(Rowless):
    """It reads the end of the answers, as far back as contexts are compared: nothing is kept."""

    def __init__(self, scheme: SynthID, run: Run) -> None:
        super().__init__("watermark")
        self.keys = scheme.keys
        self.context_length = scheme.ngram_len - 1
        self.history_size = scheme.context_history_size
        self.first_marked = self.context_length if scheme.skip_first_ngram_calls else 0
        self.table = _bits(scheme.sampling_table_size, scheme.sampling_table_seed).to(run.device)
        self.vocabulary = torch.arange(run.vocab_size, device=run.device)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        if state.most_generated < self.first_marked:
            return logits
        hashes = self._hashed_contexts(state)
        unmarked = self._is_repeated(state, hashes)
        unmarked |= state.num_generated < self.first_marked
        unmarked |= (logits == -math.inf).all(-1)
        return torch.where(unmarked.unsqueeze(-1), logits, self._marked(logits, hashes[:, -1:]))

    def _hashed_contexts(self, state: GenerationState) -> torch.Tensor:
        """The contexts of this step, in the last column, and of the steps before it.

        int64 `[batch, steps]`, as many steps as contexts are compared, if there were so many.
        """
        num_steps = min(self.history_size, state.most_generated) + 1
        width = min(num_steps - 1 + self.context_length, state.length)
        ids = state.since(state.length - width)
        columns = torch.arange(state.length - width, state.length, device=state.device)
        generated = ids.where(columns >= state.prompt_ends.unsqueeze(-1), 0)
        padded = pad(generated, (num_steps - 1 + self.context_length - width, 0))
        contexts = padded.unfold(1, self.context_length, 1)
        hashes = torch.ones_like(contexts[:, :, 0])
        for place in contexts.unbind(-1):
            hashes = _mix(hashes, place)
        return hashes

    def _is_repeated(self, state: GenerationState, hashes: torch.Tensor) -> torch.Tensor:
        """Whether the last context is one of those before it that were marked, bool `[batch]`."""
        num_earlier = hashes.shape[1] - 1
        back = torch.arange(num_earlier, 0, -1, device=hashes.device)
        marked = state.num_generated.unsqueeze(-1) - back >= self.first_marked
        return ((hashes[:, :-1] == hashes[:, -1:]) & marked).any(-1)

    def _marked(self, logits: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Log-probabilities after the rounds of all keys."""
        logprobs = logits.log_softmax(-1, dtype=torch.float64)
        hashes = _mix(context, self.vocabulary)
        for key in self.keys:
            bits = self.table[_mix(hashes, key) % len(self.table)]
            # The mass of the bits 0 is 1 - sum(g * p), and loses no digits where that is small.
            losers = logprobs.masked_fill(bits, -math.inf).logsumexp(-1, keepdim=True)
            logprobs = logprobs + torch.where(bits, losers.exp().log1p(), losers)
        return logprobs.to(logits.dtype)


def _mix(hashes: torch.Tensor, data: torch.Tensor | int) -> torch.Tensor:
    """One step of the generator, in 64 bits that wrap around."""
    return (hashes + data) * _MULTIPLIER + 1


@lru_cache(maxsize=4)
def _bits(size: int, seed: int) -> torch.Tensor:
    """Random bits, bool `[size]`."""
    return torch.randint(2, (size,), generator=torch.Generator().manual_seed(seed)).bool()
