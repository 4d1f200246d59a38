"""A transformers causal model behind genkit's contract."""

from __future__ import annotations

from typing import Any

import torch

from genkit.backends.column_cache import ColumnCache, Memory
from genkit.backends.model_facts import Facts
from genkit.backends.prefill import pieces
from genkit.backends.pytorch_compiled import CompiledStep, buffer_size
from genkit.backends.transformers_compat import (
    AttentionMemory,
    RecurrentMemory,
    Signature,
)
from genkit.core.contracts import Cache
from genkit.core.fingerprint import fingerprint_of, version_of
from genkit.core.state import GenerationState
from genkit.errors import OptionError, OptionProblem, UnsupportedError
from genkit.text.tokenizer import Tokenizer

_OF_THE_FILE = {"_name_or_path", "architectures", "dtype", "torch_dtype"}
"""What a configuration says of where the weights were; what they are now, they say themselves."""


class PyTorchModel:
    """A causal language model of transformers; see `genkit.core.contracts.Model`.

    It sets no attribute of the module and keeps nothing of a run, so that threads may share it.

    Args:
        module: the model, in evaluation mode on its device.
        facts: what its configuration says.
        tokenizer: the model's own, None if it has none.
        name: what the user called it.
        prefill_chunk: how many columns a forward takes at most; None: all of them.
        compiler: what `torch.compile` calls the compiler of decode steps on a static cache; None:
            they are not compiled.

    Raises:
        UnsupportedError: a recurrent model cannot take its prompt in pieces, or be compiled.
    """

    def __init__(
        self,
        module: Any,
        facts: Facts,
        tokenizer: Tokenizer | None = None,
        name: str = "",
        *,
        prefill_chunk: int | None = None,
        compiler: str | None = None,
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
        self._fingerprint: tuple[int, str] | None = None  # with the version it was taken of
        self.prefill_chunk = prefill_chunk
        self.compiled: CompiledStep | None = None
        if prefill_chunk is not None and prefill_chunk < 1:
            raise OptionError(
                "pytorch", [OptionProblem(("prefill_chunk",), "at least 1", prefill_chunk)]
            )
        if prefill_chunk is not None and "block" not in self.supports:
            raise UnsupportedError(
                f"`prefill_chunk`: {self._kind} is recurrent and takes a prompt in one piece"
            )
        if compiler is not None:
            if facts.shared_layers is None:
                raise UnsupportedError(
                    f"`compile: true`: {self._kind} is recurrent; only decoding with keys and "
                    "values is compiled"
                )
            self.compiled = CompiledStep(module, facts.shared_layers, self._arguments, compiler)
            self.cache_must_use = frozenset({"static"})

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
        feed = self._feed if self.prefill_chunk is None else self._feed_in_pieces
        if torch.is_grad_enabled():
            with torch.no_grad():
                return feed(input_ids, cache, n)
        return feed(input_ids, cache, n)

    def new_cache(self, state: GenerationState) -> ColumnCache:
        """An empty cache for the rows of `state`."""
        return self._cache(state, static=False)

    def new_static_cache(self, state: GenerationState) -> ColumnCache:
        """An empty cache whose memory is taken at once, with the first forward."""
        return self._cache(state, static=True)

    def fingerprint(self) -> str:
        """Equal for equal weights in the same precision, under the same configuration.

        The first call reads all weights, and so does one after they were changed. How attention is
        computed makes no difference: the arithmetic is the same.
        """
        version = self.weights_version
        if self._fingerprint is None or self._fingerprint[0] != version:
            config = self.module.config.to_dict()
            facts = {key: value for key, value in config.items() if key not in _OF_THE_FILE}
            facts["class"] = type(self.module).__qualname__
            # What is not saved counts too, such as the frequencies of a rotary embedding.
            weights = {
                **self.module.state_dict(keep_vars=True),
                **dict(self.module.named_buffers()),
            }
            self._fingerprint = version, fingerprint_of(facts, weights.items())
        return self._fingerprint[1]

    @property
    def weights_version(self) -> int:
        """Another number after a parameter or buffer was written to, moved or exchanged."""
        module = self.module
        return version_of([*module.named_parameters(), *module.named_buffers()])

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

    def _feed_in_pieces(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        """As many forward passes as the columns take; the last one has all `n` positions in it."""
        *first, (start, end) = pieces(input_ids.shape[1], n, self.prefill_chunk)
        for piece in first:
            self._feed(input_ids[:, slice(*piece)], cache, 1)
        return self._feed(input_ids[:, start:end], cache, n)

    def _feed(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """One forward pass. `cache` is a `ColumnCache`, perhaps wrapped."""
        num_columns = input_ids.shape[1]
        if cache.padded and "ragged" not in self.supports:
            raise UnsupportedError(f"{self._kind} cannot run rows of different lengths together")
        if self.facts.shared_layers is None:
            self._check_recurrent(cache, num_columns)
        if self.facts.rope_is_capped:
            self._check_rope(cache.longest + num_columns)
        compiled = self.compiled
        logits = None
        if compiled is not None and num_columns == 1 and cache.length:
            logits = compiled(input_ids, cache)
        if logits is not None:
            cache.advance(num_columns)
        else:
            length = cache.length
            logits = self._forward(input_ids, cache, num_kept)
            cache.advance(num_columns)
            if compiled is not None:
                self._prepare(compiled, cache, length)
        # Where the head cannot be told to leave positions out, it sees them all. Applying it here
        # instead would lose what some architectures do after it, such as scaling or capping.
        if logits.shape[1] != num_kept:
            logits = logits[:, -num_kept:]
        return logits if logits.dtype == torch.float64 else logits.float()

    def _prepare(self, compiled: CompiledStep, cache: Any, length: int) -> None:
        """Compile the next step; if that fails, so has the forward, which began at `length`."""
        try:
            compiled.prepare(cache)
        except BaseException:
            cache.crop(length)
            raise

    def _forward(self, input_ids: torch.Tensor, cache: Any, num_kept: int) -> torch.Tensor:
        """The module's logits, of the last `num_kept` positions at least."""
        n = input_ids.shape[1]
        arguments = self._arguments(cache.positions(n), cache.mask(n), cache.open())
        if self._signature.logits_to_keep:
            arguments["logits_to_keep"] = num_kept
        output = self.module(input_ids, **arguments)
        cache.close(n, output)
        logits: torch.Tensor = output.logits
        return logits

    def _arguments(
        self, positions: torch.Tensor, mask: torch.Tensor | None, past: Any
    ) -> dict[str, Any]:
        signature = self._signature
        arguments: dict[str, Any] = {self._cache_name: past}
        if signature.use_cache:
            arguments["use_cache"] = True
        # Some architectures would count from 0 again, whatever the cache holds.
        if signature.positions:
            arguments["position_ids"] = positions
        if mask is not None and signature.mask:
            arguments["attention_mask"] = mask
        return arguments

    def _cache(self, state: GenerationState, *, static: bool) -> ColumnCache:
        starts: list[int] = state.starts.tolist()
        memory: Memory
        if self.facts.shared_layers is None:
            memory = RecurrentMemory(self._cache_name)
        else:
            room = state.max_length
            if static and self.compiled is not None:
                self.compiled.refresh()
                room = buffer_size(room)
            memory = AttentionMemory(self.facts.shared_layers, room, static)
        return ColumnCache(starts, self.supports, memory, self.device)

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
