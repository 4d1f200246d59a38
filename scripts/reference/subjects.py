"""What the reference is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from genkit import Kit, errors
from genkit.cli.app import app
from genkit.plugins import hookspecs
from genkit.plugins.registry import PartEntry


def _parts() -> Sequence[PartEntry]:
    """The parts that come with genkit: what else is installed makes no difference to the pages."""
    return Kit(entry_points=False).parts()


@dataclass(frozen=True)
class Subjects:
    """The parts, hooks, errors, commands and modules that have a page."""

    parts: Sequence[PartEntry] = field(default_factory=_parts)
    hooks: ModuleType = hookspecs
    errors: ModuleType = errors
    app: Any = app
    modules: Sequence[str] = ("genkit", "genkit.plugins", "genkit.testing")
