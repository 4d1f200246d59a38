"""A part that is named now and imported when it is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from genkit.errors import PluginError


@dataclass(frozen=True, slots=True)
class Lazy:
    """The name of a part and where its class is; see `lazy`."""

    name: str
    target: str
    summary: str = ""

    def load(self) -> Any:
        """Import what `target` names."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


def lazy(name: str, target: str, summary: str = "") -> Lazy:
    """A part for a registration hook that costs nothing until somebody uses it.

    A class must be imported to be returned, and the module of a part imports torch. A name is all
    that listing parts needs.

    Args:
        name: the name in recipes, the same as the class's `type`.
        target: where the class is, ``"package.module:Class"``.
        summary: one line for `genkit parts`.

    Raises:
        PluginError: `target` is not of this form, or `name` is empty.
    """
    module, _, attribute = target.partition(":")
    if not (name and module and attribute):
        raise PluginError(f"lazy({name!r}, {target!r}): expected a name and 'package.module:Class'")
    return Lazy(name, target, summary)
