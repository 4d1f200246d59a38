"""Which files a model was read from, and whether they are still the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from genkit.errors import UnsupportedError


@dataclass(frozen=True)
class Stamp:
    """A file as it was when a model was read from it.

    Attributes:
        path: the file.
        size: in bytes.
        changed: when it was last written to, in nanoseconds.
    """

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """The stamp of a file as it is now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def sha256(self) -> bytes:
        """The SHA-256 of the file.

        Raises:
            UnsupportedError: it is not the file that the model was read from any more, so that
                nobody can tell what the model's weights are.
        """
        try:
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if Stamp.of(self.path) == self:
                return digest
        except OSError:
            pass
        raise UnsupportedError(
            f"{self.path} has changed since the model was loaded, so its fingerprint cannot be "
            "taken; load the model again"
        )
