"""A transformers causal model behind genkit's contract."""

from __future__ import annotations

from typing import Any

import torch

from genkit.backends.model_facts import Facts
from genkit.backends.pytorch_cache import PyTorchCache
from genkit.backends.transformers_compat import (
    AttentionMemory,
    Memory,
    RecurrentMemory,
    Signature,
)
from genkit.core.contracts import Cache
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError
from genkit.text.tokenizer import Tokenizer


class PyTorchModel:
    """A causal language model of transformers; see `genkit.core.contracts.Model`.

    It sets no attribute of the module and keeps nothing of a run, so that threads may share it.

    Args:
        module: the model, in evaluation mode on its device.
        facts: what its configuration says.
        tokenizer: the model's own, None if it has none.
        name: what the user called it.
    """

    def __init__(
        self, module: Any, facts: Facts, tokenizer: Tokenizer | None = None, name: str = ""
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.name = name
        self.facts = facts
        self.vocab_size = facts.vocab_size
        self.eos_token_ids = facts.eos_token_ids
        self.context_length = facts.context_length
        self.supports = facts.supports
        self.device: torch.device = module.device
        self._signature = Signature(module)
        self._cache_name = self._signature.cache or "cache"

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Feed what the cache does not hold; logits of the last position, `[batch, vocab_size]`.

        Raises:
            UnsupportedError: a model without `ragged` is fed padded rows, or a recurrent one a
                block after a past.
        """
        return self.last(input_ids, cache, 1).select(1, 0)

    def last(self, input_ids: torch.Tensor, cache: Cache, n: int) -> torch.Tensor:
        """Feed what the cache does not hold; logits of the last `n` positions fed.

        Args:
            input_ids: int64 `[batch, columns]`, at least `n` columns.
            cache: from `new_cache`, or a wrapper of one.
            n: how many positions, at least 1.

        Returns:
            `[batch, n, vocab_size]`, float64 for a float64 model and float32 for all others.
        """
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._feed(input_ids, cache, n)
        return self._feed(input_ids, cache, n)

    def new_cache(self, state: GenerationState) -> PyTorchCache:
        """An empty cache for the rows of `state`."""
        return self._cache(state, static=False)

    def new_static_cache(self, state: GenerationState) -> PyTorchCache:
        """An empty cache whose memory is taken at once, with the first forward."""
        return self._cache(state, static=True)

    def describe(self) -> dict[str, Any]:
        """What `genkit doctor` shows: plain values only."""
        config = self.module.config
        return {
            "model": self.name,
            "architecture": type(self.module).__name__,
            "model_type": config.model_type,
            "num_parameters": self.module.num_parameters(),
            "dtype": str(self.module.dtype).removeprefix("torch."),
            "device": str(self.device),
            "attention": getattr(config, "_attn_implementation", None),
            "vocab_size": self.vocab_size,
            "context_length": self.context_length,
            "eos_token_ids": sorted(self.eos_token_ids),
            "supports": sorted(self.supports),
        }

    def _feed(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """One forward pass. `cache` is a `PyTorchCache`, perhaps wrapped."""
        num_columns = input_ids.shape[1]
        if cache.padded and "ragged" not in self.supports:
            raise UnsupportedError(f"{self._kind} cannot run rows of different lengths together")
        if self.facts.shared_layers is None:
            self._check_recurrent(cache, num_columns)
        if self.facts.rope_is_capped:
            self._check_rope(cache.longest + num_columns)
        output = self.module(
            input_ids, **self._arguments(cache, num_columns, num_kept, cache.open())
        )
        cache.close(num_columns, output)
        cache.advance(num_columns)
        logits: torch.Tensor = output.logits
        # Where the head cannot be told to leave positions out, it sees them all. Applying it here
        # instead would lose what some architectures do after it, such as scaling or capping.
        if logits.shape[1] != num_kept:
            logits = logits[:, -num_kept:]
        return logits if logits.dtype == torch.float64 else logits.float()

    def _arguments(self, cache: Any, n: int, num_kept: int, past: Any) -> dict[str, Any]:
        signature = self._signature
        arguments: dict[str, Any] = {self._cache_name: past}
        if signature.use_cache:
            arguments["use_cache"] = True
        if signature.logits_to_keep:
            arguments["logits_to_keep"] = num_kept
        # Some architectures would count from 0 again, whatever the cache holds.
        if signature.positions:
            arguments["position_ids"] = cache.positions(n)
        if cache.needs_mask and signature.mask:
            arguments["attention_mask"] = cache.mask(n)
        return arguments

    def _cache(self, state: GenerationState, *, static: bool) -> PyTorchCache:
        starts: list[int] = state.starts.tolist()
        memory: Memory
        if self.facts.shared_layers is None:
            memory = RecurrentMemory(self._cache_name)
        else:
            memory = AttentionMemory(self.facts.shared_layers, state.max_length, static)
        return PyTorchCache(starts, self.supports, memory, self.device)

    def _check_recurrent(self, cache: Any, num_columns: int) -> None:
        """A block on top of a state would be wrong without any error."""
        if cache.length and num_columns > 1:
            raise UnsupportedError(
                f"{self._kind} takes one token at a time after its prompt, not {num_columns}"
            )

    def _check_rope(self, longest: int) -> None:
        """See `model_facts.length_of_constant_rope`; a pipeline ends its rows before."""
        if longest > (self.context_length or 0):
            raise UnsupportedError(
                f"{self._kind} rotates keys in another way beyond {self.context_length} tokens, so "
                "that keys in a cache no longer fit; keep prompt and answer within that length"
            )

    @property
    def _kind(self) -> str:
        return f"the model {self.name or type(self.module).__name__!r}"
