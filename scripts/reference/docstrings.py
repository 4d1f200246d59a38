"""The sections of a docstring."""

from __future__ import annotations

import inspect
from typing import Any

from griffe import Docstring, DocstringSectionKind


def sections_of(described: Any) -> list[Any]:
    """Its text, and lists such as what it raises, as griffe reads them."""
    text = inspect.cleandoc(described.__doc__ or "")
    return Docstring(text).parse("google", warnings=False)


def text_of(described: Any) -> str:
    """A docstring without its lists of attributes and the like, which stand at the end."""
    sections = sections_of(described)
    return "\n\n".join(s.value for s in sections if s.kind is DocstringSectionKind.text)
