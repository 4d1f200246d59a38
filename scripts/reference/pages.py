"""All pages of the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable

from genkit.plugins.hookspecs import PART_HOOKS
from reference.commands import command_page
from reference.errors import error_page
from reference.hooks import hook_page
from reference.markdown import table
from reference.parts import file_name, part_page, title
from reference.python import python_page
from reference.subjects import Subjects
from reference.undocumented import Undocumented

_INDEX = """\
# Reference

These pages are made from the code, each time the site is built. `genkit parts` shows the same of
parts, those of installed plugins included, and `--help` of commands.
"""


def pages(subjects: Subjects) -> dict[str, str]:
    """The text of each page, by its file.

    Raises:
        Undocumented: something public has no documentation; names all of it.
    """
    makers = _makers(subjects)
    made: dict[str, str] = {}
    lacks: list[str] = []
    for file, make in makers.items():
        try:
            made[file] = make()
        except Undocumented as error:
            lacks += error.lacks
    if lacks:
        raise Undocumented(lacks)
    return {"index.md": _index(subjects), **made}


def _makers(subjects: Subjects) -> dict[str, Callable[[], str]]:
    makers: dict[str, Callable[[], str]] = {}
    for kind in PART_HOOKS:
        entries = sorted((e for e in subjects.parts if e.kind == kind), key=lambda e: e.name)
        makers[file_name(kind)] = functools.partial(part_page, kind, entries)
    makers["hooks.md"] = lambda: hook_page(subjects.hooks)
    makers["errors.md"] = lambda: error_page(subjects.errors)
    makers["command-line.md"] = lambda: command_page(subjects.app)
    makers["python.md"] = lambda: python_page(subjects.modules)
    return makers


def _index(subjects: Subjects) -> str:
    rows = []
    for kind in PART_HOOKS:
        names = sorted(entry.name for entry in subjects.parts if entry.kind == kind)
        rows.append([f"[{title(kind)}]({file_name(kind)})", ", ".join(f"`{n}`" for n in names)])
    rows += [
        ["[Hooks](hooks.md)", "what a plugin may implement"],
        ["[Errors](errors.md)", "when each is raised, and what to do; exit status of commands"],
        ["[Command line](command-line.md)", "every command, with its options and an example"],
        ["[Python](python.md)", "the names of `genkit`, `genkit.plugins` and `genkit.testing`"],
    ]
    return f"{_INDEX}\n{table(['page', 'what is there'], rows)}"
