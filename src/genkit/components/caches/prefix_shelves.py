"""Which stored prefixes belong to which model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from genkit.components.caches.prefix_files import PrefixFiles
from genkit.components.caches.prefix_store import Ids, Match, PrefixStore
from genkit.errors import UnsupportedError
from genkit.home import home


@dataclass(frozen=True)
class Shelf:
    """Where the prefixes of one model are, with the weights that it has now.

    Attributes:
        version: of the weights, see `version_of`.
        store: prefixes in memory.
        files: prefixes on disk, if they are kept there.
    """

    version: object
    store: PrefixStore
    files: PrefixFiles | None

    def find(self, ids: Ids) -> Match | None:
        """The entry that shares the most first ids; one that comes from disk is then in memory."""
        match = self.store.find(ids)
        if self.files is None:
            return match
        longer = self.files.find(ids, beyond=0 if match is None else match.length)
        if longer is None:
            return match
        self.store.add(longer.entry)
        return longer

    def lacking(self, ids: Ids) -> list[PrefixStore | PrefixFiles]:
        """The places where no entry begins with these ids."""
        places = (self.store, self.files)
        return [place for place in places if place is not None and not place.covers(ids)]


class Shelves:
    """A shelf for each model that is alive; equal models are not the same one.

    It is no part of what a spec says: all are equal, and a copy, here or in another process, begins
    empty.
    """

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}  # by the id of the model, as long as it lives
        self._models: dict[int, ref[Any]] = {}
        self._lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shelves)

    def __hash__(self) -> int:
        return hash(Shelves)

    def __reduce__(self) -> tuple[type[Shelves], tuple[()]]:
        return Shelves, ()

    def of(self, model: Any, max_bytes: int, disk: bool) -> Shelf:
        """The shelf of a model as it is now: a new one where its weights have changed."""
        version = version_of(model)
        key = id(model)
        with self._lock:
            shelf = self._shelves.get(key)
        if shelf is not None and shelf.version == version:
            return shelf
        # Reads the weights: not under the lock.
        files = _files(model, max_bytes) if disk and not _autocast(model) else None
        with self._lock:
            shelf = self._shelves.get(key)
            if shelf is None or shelf.version != version:
                shelf = Shelf(version, PrefixStore(max_bytes), files)
                self._models[key] = self._weakly(model, key)
                self._shelves[key] = shelf
            return shelf

    def _weakly(self, model: Any, key: int) -> ref[Any]:
        try:
            return ref(model, lambda _: self._forget(key))
        except TypeError as error:
            raise UnsupportedError(
                "the cache 'prefix' forgets what it has stored when the model goes, and the model "
                f"{type(model).__name__} cannot be watched: add '__weakref__' to its `__slots__`"
            ) from error

    def _forget(self, key: int) -> None:
        # Without the lock: the collector may come while this very thread holds it.
        self._shelves.pop(key, None)
        self._models.pop(key, None)


def version_of(model: Any) -> object:
    """What changes with what the model computes: its weights, if it says so, and the precision."""
    return getattr(model, "weights_version", None), _autocast(model)


def _autocast(model: Any) -> torch.dtype | None:
    """The precision that PyTorch is told to compute in, whatever the weights are; None: theirs."""
    kind = torch.device(model.device).type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _files(model: Any, max_bytes: int) -> PrefixFiles:
    fingerprint = model.fingerprint()
    return PrefixFiles(home() / "prefixes" / fingerprint, fingerprint, max_bytes, model.device)
