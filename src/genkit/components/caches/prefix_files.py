"""Stored prefixes of one model, on disk: one file of safetensors each.

Several processes may share the folder. A file appears whole or not at all, is checked before it is
used, and may vanish at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from genkit.components.caches.prefix_store import Entry, Ids, Match, on_host, shared
from genkit.core.fingerprint import fingerprint_of

logger = logging.getLogger(__name__)

FORMAT = "genkit prefix 1"
"""Stands in every file; another number for another content."""

_UNFINISHED = ".safetensors.tmp"
_HOUR = 3600.0


@dataclass(frozen=True)
class _File:
    """What is known of a file without reading its keys and values.

    Attributes:
        size, changed: bytes, and the time of the last use in nanoseconds.
        ids: of the prefix; None for a file that cannot be used.
    """

    size: int
    changed: int
    ids: Ids | None

    def is_same(self, now: _File) -> bool:
        """Whether its ids need not be read again; being used changes the time of a good file."""
        return self.size == now.size and (self.ids is not None or self.changed == now.changed)


class PrefixFiles:
    """The prefixes in a folder that were used last, as many as fit into a number of bytes.

    Args:
        folder: where they are; made when the first one is stored.
        fingerprint: of the model. A file of another one is not used.
        max_bytes: the most disk space for all of them together.
        device: where keys and values are wanted.
    """

    def __init__(
        self, folder: Path, fingerprint: str, max_bytes: int, device: torch.device | str = "cpu"
    ) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.max_bytes = max_bytes
        self.device = device
        self._files: dict[str, _File] = {}
        self._lock = threading.Lock()

    def find(self, ids: Ids, beyond: int = 0) -> Match | None:
        """The entry that shares the most first ids, if they are more than `beyond`."""
        for name, known, length in self._by_length(ids):
            if length <= beyond:
                break
            entry = self._load(name, known)
            if entry is not None:  # another file may have taken the name since its ids were read
                match = Match(entry, shared(entry.ids, ids))
                if match.length > beyond:
                    self._touch(name)
                    return match
        return None

    def covers(self, ids: Ids) -> bool:
        """Whether a file begins with these ids; if so, it counts as used."""
        for name, _, length in self._by_length(ids)[:1]:
            if length == len(ids):
                self._touch(name)
                return True
        return False

    def add(self, entry: Entry) -> None:
        """Store an entry in place of those that it begins with; what was used first makes room."""
        if entry.num_bytes > self.max_bytes:
            return
        name = hashlib.sha256(entry.ids.tobytes()).hexdigest()[:32] + ".safetensors"
        temporary = self.folder / f"{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tensors = _tensors_of(entry)
            save_file(tensors, temporary, self._metadata(tensors))
            if temporary.stat().st_size > self.max_bytes:
                return
            os.replace(temporary, self.folder / name)
        except Exception as error:  # the disk is full, or not ours to write: the run goes on
            logger.warning("%s: a prefix cannot be stored here: %s", self.folder, error)
        else:
            self._touch(name)
            self._make_room(name, entry.ids)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _by_length(self, ids: Ids) -> list[tuple[str, _File, int]]:
        """The files that can be used, and how many first ids each shares; the most come first."""
        found = [(name, file, shared(file.ids, ids))
                 for name, file in self._listed().items() if file.ids is not None]  # fmt: skip
        return sorted(found, key=lambda each: each[2], reverse=True)

    def _listed(self) -> dict[str, _File]:
        """The files that there are now. Only what is new to us is opened, and of that the ids."""
        with self._lock:
            self._files = dict(self._list())
            return self._files

    def _list(self) -> Iterator[tuple[str, _File]]:
        for name, status in self._scan(".safetensors"):
            now = _File(status.st_size, status.st_mtime_ns, None)
            known = self._files.get(name)
            try:
                ids = (
                    known.ids if known is not None and known.is_same(now) else self._read_ids(name)
                )
            except FileNotFoundError:
                continue
            yield name, replace(now, ids=ids)

    def _scan(self, ending: str) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # it has vanished, or leads nowhere
                        if entry.name.endswith(ending) and entry.is_file():
                            found.append((entry.name, entry.stat()))
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s: prefixes cannot be looked for here: %s", self.folder, error)
        return found

    def _read_ids(self, name: str) -> Ids | None:
        """The ids of a file; None, and a warning, if it is none of ours."""
        try:
            with safe_open(self.folder / name, framework="pt") as file:
                self._check_metadata(file.metadata() or {})
                return _ids_of(file.get_tensor("ids"))
        except FileNotFoundError:
            raise
        except Exception as error:
            self._warn(name, error)
            return None

    def _load(self, name: str, known: _File) -> Entry | None:
        """The whole file, checked; None if it has vanished or, with a warning, is damaged."""
        try:
            with safe_open(self.folder / name, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            self._check_metadata(metadata)
            if metadata != self._metadata(tensors):
                raise ValueError("its content is not what was written")
            return self._entry(tensors)
        except FileNotFoundError:
            return None
        except Exception as error:
            self._warn(name, error)
            with self._lock:
                self._files = {**self._files, name: _File(known.size, known.changed, None)}
            return None

    def _metadata(self, tensors: dict[str, torch.Tensor]) -> dict[str, str]:
        facts = {"format": FORMAT, "fingerprint": self.fingerprint}
        return {**facts, "sha256": fingerprint_of(facts, sorted(tensors.items()))}

    def _check_metadata(self, metadata: dict[str, str]) -> None:
        if metadata.get("format") != FORMAT:
            raise ValueError(f"its format is {metadata.get('format')!r}, not {FORMAT!r}")
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError("it is of another model")

    def _warn(self, name: str, error: Exception) -> None:
        logger.warning("%s: no prefix of this model, not used: %s", self.folder / name, error)

    def _touch(self, name: str) -> None:
        """Note that a file is used now; the clock of the file system may be too coarse for that."""
        now = time.time_ns()
        with contextlib.suppress(OSError):
            os.utime(self.folder / name, ns=(now, now))

    def _make_room(self, name: str, ids: Ids) -> None:
        """Remove what a new file begins with, and then what was used first.

        Only files of ours are counted and removed, and what a process that was killed left behind.
        """
        ours = {name: file for name, file in self._listed().items() if file.ids is not None}
        for old, file in list(ours.items()):
            assert file.ids is not None
            if old != name and shared(file.ids, ids) == len(file.ids):
                self._remove(old)
                del ours[old]
        num_bytes = sum(file.size for file in ours.values())
        for old in sorted(ours, key=lambda old: ours[old].changed):
            if num_bytes <= self.max_bytes:
                break
            self._remove(old)
            num_bytes -= ours[old].size
        for left, status in self._scan(_UNFINISHED):
            if time.time() - status.st_mtime > _HOUR:
                self._remove(left)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()

    def _entry(self, tensors: dict[str, torch.Tensor]) -> Entry:
        """The entry that a file holds, in memory that does not belong to the file."""
        num_layers = len(tensors) // 2
        layers = [(tensors[f"keys.{i}"], tensors[f"values.{i}"]) for i in range(num_layers)]
        return Entry(
            _ids_of(tensors["ids"]),
            tuple(
                (keys.to(self.device, copy=True), values.to(self.device, copy=True))
                for keys, values in layers
            ),
        )


def _tensors_of(entry: Entry) -> dict[str, torch.Tensor]:
    tensors = {"ids": torch.from_numpy(entry.ids)}
    for i, (keys, values) in enumerate(entry.layers):
        tensors |= {f"keys.{i}": keys, f"values.{i}": values}
    return tensors


def _ids_of(tensor: torch.Tensor) -> Ids:
    if tensor.dtype != torch.int64 or tensor.ndim != 1:
        raise ValueError("its ids are not a row of whole numbers")
    return on_host(tensor)
