"""Markdown, made of docstrings and of rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence


def prose(docstring: str) -> str:
    """A docstring as Markdown: examples become blocks, and ``::`` a colon before one."""
    return "\n\n".join(map(_paragraph, docstring.strip().split("\n\n")))


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return fence("pycon", text)
    return re.sub(r"::$", ":", text)


def fence(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.strip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A cell is one line, and may hold any character."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return _outside_code(" ".join(text.split()), {"|": r"\|"})


def as_is(text: str) -> str:
    """A text that is no Markdown but for its code: every other sign stands for itself."""
    return _outside_code(text, {"\\": r"\\", "*": r"\*", "<": "&lt;"})


def _outside_code(text: str, signs: Mapping[str, str]) -> str:
    pieces = re.split(r"(`[^`]+`)", text)
    numbers = {ord(sign): text for sign, text in signs.items()}
    pieces[::2] = [piece.translate(numbers) for piece in pieces[::2]]
    return "".join(pieces)


def anchor(name: str) -> str:
    """The end of a link to the heading of a name, as `toc` of Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", name).strip().lower())
