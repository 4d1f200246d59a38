"""One plugin: who it is, where it comes from, what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pluggy


@dataclass(eq=False)
class Plugin:
    """One plugin, whether it could be loaded or not.

    Attributes:
        name: the name of its entry point or file; `GENKIT_DISABLE_PLUGINS` takes it.
        source: `built-in`, `distribution`, `file` or `object`.
        location: the entry point's value, the path of the file, or the object's class.
        load: gives the module or object whose functions are the hooks.
        distribution, version: what was installed, None for other sources.
        state: `found` (not loaded yet), `loaded`, `disabled` or `broken`.
        cause: one line that says why it is broken.
        parts: kind and name of everything it registered, models and recipes included.
        seconds: how long loading took.
        hooks: what calls its hooks, and those of no other plugin; None unless it is loaded.
    """

    name: str
    source: Literal["built-in", "distribution", "file", "object"]
    location: str
    load: Callable[[], object] = field(repr=False)
    distribution: str | None = None
    version: str | None = None
    state: Literal["found", "loaded", "disabled", "broken"] = "found"
    cause: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    hooks: pluggy.PluginManager | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.origin})"

    def implements(self, hook: str) -> bool:
        """Whether it is loaded and has a function for this hook."""
        return self.hooks is not None and bool(getattr(self.hooks.hook, hook).get_hookimpls())

    @property
    def origin(self) -> str:
        """Where it comes from, in words: `lm-genkit-x 1.0`, `path/x.py`, `an object of class X`."""
        if self.distribution is not None:
            return f"{self.distribution} {self.version}"
        return "part of genkit" if self.source == "built-in" else self.location


def one_line(error: BaseException) -> str:
    """An exception as a single line: its type, and what it says."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
