"""The sections of a docstring."""

from __future__ import annotations

import inspect
import re
from typing import Any

from griffe import Docstring, DocstringSectionKind


def sections_of(described: Any) -> list[Any]:
    """Its text, and lists such as what it raises, as griffe reads them."""
    text = inspect.cleandoc(described.__doc__ or "")
    return Docstring(text).parse("google", warnings=False)


def says_something(described: Any) -> bool:
    """Whether there is a docstring of its own with a word in it."""
    inherited = inspect.isclass(described) and "__doc__" not in vars(described)
    return not inherited and has_words(described.__doc__ or "")


def has_words(text: str) -> bool:
    """Whether it is more than signs and single letters."""
    return re.search(r"\w\w", text) is not None


def text_of(described: Any) -> str:
    """A docstring without its lists of attributes and the like, which stand at the end."""
    sections = sections_of(described)
    return "\n\n".join(s.value for s in sections if s.kind is DocstringSectionKind.text)
