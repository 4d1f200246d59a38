"""A graph in ONNX Runtime behind genkit's contract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch

from genkit.backends.column_cache import ColumnCache
from genkit.backends.onnx_facts import Settings
from genkit.backends.onnx_file import GraphFile
from genkit.backends.onnx_graph import Graph
from genkit.backends.onnx_growing import GrowingPast
from genkit.backends.onnx_recomputed import RecomputedPast
from genkit.backends.onnx_session import device_of
from genkit.backends.onnx_shared import SharedPast
from genkit.backends.prefill import pieces
from genkit.core.contracts import Cache
from genkit.core.state import GenerationState
from genkit.errors import ModelLoadError, UnsupportedError
from genkit.text.tokenizer import Tokenizer


class OnnxModel:
    """A causal language model in ONNX Runtime; see `genkit.core.contracts.Model`.

    It keeps nothing of a run, so that threads may share it.

    Args:
        session: of ONNX Runtime.
        graph: what it takes and gives.
        file: what is known of it besides.
        settings: the files beside it.
        tokenizer: the model's own, None if it has none.
        name: what the user called it.
        prefill_chunk: how many places a forward takes at most, rows by columns; None: all of them.
        cache_dtype: what keys and values are kept in between forwards; None: as the graph has them.

    Raises:
        ModelLoadError: the files do not say enough, or the graph cannot keep its past like that.
    """

    def __init__(
        self,
        session: Any,
        graph: Graph,
        file: GraphFile,
        settings: Settings,
        tokenizer: Tokenizer | None = None,
        name: str = "",
        *,
        prefill_chunk: int | None = None,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        self.session = session
        self.graph = graph
        self.file = file
        self.tokenizer = tokenizer
        self.name = name
        self.device = device_of(session)
        self.prefill_chunk = prefill_chunk
        self._fingerprint: str | None = None
        self._sizes = settings.sizes(graph)
        self.vocab_size = self._width_of_logits()
        self.context_length = settings.context_length(file)
        self.eos_token_ids = settings.eos_token_ids(tokenizer, self.vocab_size)
        self.supports = self._claims(settings)
        self._cache_dtype = self._narrower(cache_dtype)
        self.rounds = file.rounds_activations or self._cache_dtype is not None

    @property
    def provider(self) -> str:
        """ONNX Runtime's name of what the graph runs on."""
        return str(self.session.get_providers()[0])

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Feed what the cache does not hold; logits of the last position, `[batch, vocab_size]`.

        Raises:
            UnsupportedError: a model without `ragged` is fed padded rows.
        """
        return self._last(input_ids, cache, 1).select(1, 0)

    @property
    def takes_one_row(self) -> bool:
        """Whether the graph is made for one row, and cannot be fed several at once."""
        return self.graph.ids.shape[:1] == (1,)

    @property
    def last(self) -> Callable[[torch.Tensor, Cache, int], torch.Tensor]:
        """``last(input_ids, cache, n)``: as the model itself, with logits of `n` positions.

        There is no such attribute where the graph gives logits of the last position only.
        """
        if self.graph.gives_last_only:
            raise AttributeError(f"{self._kind} gives logits of the last position only")
        return self._last

    def _last(self, input_ids: torch.Tensor, cache: Cache, n: int) -> torch.Tensor:
        """Feed what the cache does not hold; logits of the last `n` positions fed.

        Args:
            input_ids: int64 `[batch, columns]`, at least `n` columns.
            cache: from `new_cache`, or a wrapper of one.
            n: how many positions, at least 1.

        Returns:
            `[batch, n, vocab_size]`, float64 for a float64 graph and float32 for all others.
        """
        columns: Any = cache
        *first, (start, end) = pieces(input_ids.shape[1], n, self._chunk(len(input_ids)))
        for piece in first:
            self._feed(input_ids[:, slice(*piece)], columns, 1)
        return self._feed(input_ids[:, start:end], columns, n)

    def new_cache(self, state: GenerationState) -> ColumnCache:
        """An empty cache for the rows of `state`."""
        starts: list[int] = state.starts.tolist()
        graph = self.graph
        if not graph.past:
            memory: Any = RecomputedPast(self.session, graph, self.device)
        elif self.file.shares_memory:
            room, forgets = state.max_length, self.file.forgets
            if forgets:
                # Memory that holds a whole text forgets nothing; shorter than a window it may not
                # be, however short the text.
                room = max(room, *(window or 0 for window in self.file.windows))
            memory = SharedPast(
                self.session,
                graph,
                self._sizes,
                self.device,
                starts,
                room,
                self.vocab_size,
                takes_padding=not forgets,
            )
        else:
            memory = GrowingPast(self.session, graph, self._sizes, self.device, self._cache_dtype)
        return ColumnCache(starts, self.supports, memory, self.device)

    def new_static_cache(self, state: GenerationState) -> ColumnCache:
        """An empty cache whose memory is taken at once, with the first forward."""
        return self.new_cache(state)

    def fingerprint(self) -> str:
        """Equal for the same files, run by the same provider with the same options.

        The first call reads all of them.

        Raises:
            UnsupportedError: they have changed since the model was loaded.
        """
        if self._fingerprint is None:
            facts = {
                "provider": self.provider,
                "options": self.session.get_provider_options()[self.provider],
                "cache_dtype": str(self._cache_dtype),
            }
            digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
            for file in self.file.files:
                digest.update(file.sha256())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def describe(self) -> dict[str, Any]:
        """What `genkit doctor` shows: plain values only."""
        return {
            "model": self.name,
            "graph": str(self.graph.path),
            "provider": self.provider,
            "device": str(self.device),
            "dtype": _name_of(self.graph.dtype),
            "vocab_size": self.vocab_size,
            "context_length": self.context_length,
            "eos_token_ids": sorted(self.eos_token_ids),
            "supports": sorted(self.supports),
        }

    def _chunk(self, num_rows: int) -> int | None:
        """The most columns of a forward: what it computes at each place takes memory."""
        if self.prefill_chunk is None or not self.graph.past:
            return None
        return max(1, self.prefill_chunk // num_rows)

    def _feed(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        """One forward pass."""
        if cache.padded and "ragged" not in self.supports:
            raise UnsupportedError(f"{self._kind} cannot run rows of different lengths together")
        if len(input_ids) > 1 and self.takes_one_row:
            raise UnsupportedError(f"{self._kind} takes one row at a time")
        logits: torch.Tensor = cache.open().run(input_ids, cache, n)
        if logits.shape[1] < n:
            raise UnsupportedError(
                f"{self._kind} gives logits of {logits.shape[1]} positions, and {n} are wanted; "
                "export it with logits of all positions"
            )
        cache.advance(input_ids.shape[1])
        if logits.shape[1] != n:
            logits = logits[:, -n:]
        return logits if logits.dtype == torch.float64 else logits.float()

    def _claims(self, settings: Settings) -> frozenset[str]:
        """What the graph's form promises; `onnx_trial` finds out what it keeps."""
        claims = {"crop", "block", "reorder", "ragged"}
        if self.graph.past:
            claims.add("layers")
        if self.file.shares_memory:
            claims.add("static")
        elif self.graph.past and self.graph.positions is not None and settings.sees_all():
            claims.add("positions")
        if self.graph.mask is None:
            claims.discard("ragged")
        return frozenset(claims)

    def _narrower(self, dtype: torch.dtype | None) -> torch.dtype | None:
        """The type to keep the past in, None where that is the graph's own."""
        if dtype is None:
            return None
        asked, path = f"cache_dtype: {_name_of(dtype)}", self.graph.path
        if not self.graph.past:
            raise ModelLoadError(f"{asked}: {path} keeps no past that could be stored in less")
        own = self.graph.past[0].past.dtype
        if dtype == own:
            return None
        if self.file.shares_memory:
            raise ModelLoadError(
                f"{asked}: {path} writes into its past itself, and in {_name_of(own)}; leave the "
                "option out, or take a graph that returns its past (of the exporters "
                "'transformers' and 'optimum')"
            )
        if dtype.itemsize >= own.itemsize:
            raise ModelLoadError(
                f"{asked}: {path} has a past in {_name_of(own)}, which takes no more; leave the "
                "option out"
            )
        return dtype

    def _width_of_logits(self) -> int:
        width = self.graph.logits.shape[-1]
        if isinstance(width, int):
            return width
        raise ModelLoadError(f"{self.graph.path} does not say how wide its logits are")

    @property
    def _kind(self) -> str:
        return f"the model {self.name or self.graph.path.name!r}"


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
