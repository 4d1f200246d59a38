"""Stored prefixes of one model, in memory: which tokens, and what the layers hold of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from genkit.core.contracts import Layer

Ids: TypeAlias = npt.NDArray[np.int64]


class PrefixStats(NamedTuple):
    """What the stored prefixes of a model have been good for.

    Attributes:
        num_hits: rows that began with something stored.
        num_reused_tokens: tokens that these rows did not have to feed.
        num_entries: prefixes held in memory.
        num_bytes: memory that they take.
    """

    num_hits: int
    num_reused_tokens: int
    num_entries: int
    num_bytes: int


@dataclass(frozen=True, eq=False)
class Entry:
    """Some tokens and what each layer holds of them; nobody writes into it.

    Attributes:
        ids: int64 `[tokens]`, on the host.
        layers: keys and values `[1, heads, tokens, dim]`, slot j for token j.
    """

    ids: Ids
    layers: tuple[Layer, ...]

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return self.ids.nbytes + sum(k.nbytes + v.nbytes for k, v in self.layers)


class Match(NamedTuple):
    """An entry, and how many of its first tokens are wanted."""

    entry: Entry
    length: int


class PrefixStore:
    """The prefixes of one model that were used last, as many as fit into a number of bytes.

    No entry begins with another one. Several threads may use it at once: the lock is held while
    ids are compared, and never while a model runs or tensors are copied.

    Args:
        max_bytes: the most memory for all entries together.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # used last: at the end
        self._lock = threading.Lock()
        self._num_hits = 0
        self._num_reused_tokens = 0

    def find(self, ids: Ids, beyond: int = 0) -> Match | None:
        """The entry that shares the most first ids, if they are more than `beyond`."""
        with self._lock:
            found = max(
                (Match(entry, shared(entry.ids, ids)) for entry in self._entries.values()),
                key=lambda match: match.length,
                default=None,
            )
            if found is None or found.length <= beyond:
                return None
            self._entries.move_to_end(found.entry.ids.tobytes())
            return found

    def covers(self, ids: Ids) -> bool:
        """Whether an entry begins with these ids; if so, it counts as used."""
        found = self.find(ids, beyond=len(ids) - 1)
        return found is not None

    def add(self, entry: Entry) -> None:
        """Store an entry in place of those that it begins with; what was used first makes room."""
        if entry.num_bytes > self.max_bytes:
            return
        with self._lock:
            for key, old in list(self._entries.items()):
                if shared(old.ids, entry.ids) == len(old.ids):
                    del self._entries[key]
            self._entries[entry.ids.tobytes()] = entry
            while self._num_bytes() > self.max_bytes:
                self._entries.popitem(last=False)

    def count(self, num_tokens: int) -> None:
        """A row did not have to feed that many tokens."""
        with self._lock:
            self._num_hits += 1
            self._num_reused_tokens += num_tokens

    def stats(self) -> PrefixStats:
        """What the store holds, and what it has been good for."""
        with self._lock:
            return PrefixStats(
                self._num_hits, self._num_reused_tokens, len(self._entries), self._num_bytes()
            )

    def _num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self._entries.values())


def shared(ids: Ids, others: Ids) -> int:
    """How many first ids are the same."""
    length = min(len(ids), len(others))
    differ = ids[:length] != others[:length]
    return int(differ.argmax()) if differ.any() else length


def on_host(row: torch.Tensor) -> Ids:
    """Ids of a state, int64 `[tokens]`, as an array of its own."""
    ids: Ids = row.cpu().numpy().copy()
    return ids
