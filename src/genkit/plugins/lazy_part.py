"""A part that is named now and imported when it is used."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from genkit.errors import MissingPackageError, PluginError


@dataclass(frozen=True, slots=True)
class Lazy:
    """The name of a part and where its class is; see `lazy`."""

    name: str
    target: str
    summary: str = ""
    extra: str = ""

    def load(self) -> Any:
        """Import what `target` names.

        Raises:
            MissingPackageError: a package is missing that `extra` brings.
        """
        module, _, attribute = self.target.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if not self.extra or missing == module.partition(".")[0]:
                raise
            advice = f"pip install '{self.extra}'"
            raise MissingPackageError(missing, advice, f"the part {self.name!r}") from error


def lazy(name: str, target: str, summary: str = "", *, extra: str = "") -> Lazy:
    """A part for a registration hook that costs nothing until somebody uses it.

    A class must be imported to be returned, and the module of a part imports torch. A name is all
    that listing parts needs.

    Args:
        name: the name in recipes, the same as the class's `type`.
        target: where the class is, ``"package.module:Class"``.
        summary: one line for `genkit parts`.
        extra: what to install if a package that the class imports is missing, such as
            ``lm-genkit[onnx]``.

    Raises:
        PluginError: `target` is not of this form, or `name` is empty.
    """
    if not (_is(name, r"\S+") and _is(target, r"[^\s:]+:[^\s:]+")):
        raise PluginError(f"lazy({name!r}, {target!r}): expected a name and 'package.module:Class'")
    return Lazy(name, target, summary, extra)


def _is(text: object, pattern: str) -> bool:
    return isinstance(text, str) and re.fullmatch(pattern, text) is not None
