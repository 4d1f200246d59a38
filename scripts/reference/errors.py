"""The page of the errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

import griffe

from genkit.cli.errors import FAILED, INTERRUPTED, PIPE_CLOSED
from genkit.errors import GenkitError
from reference.docstrings import has_words, says_something
from reference.markdown import anchor, prose, table
from reference.python import read
from reference.undocumented import Undocumented

ADVICE = "What to do: "
"""How the paragraph of a docstring begins that says what to do about the error."""

_HEAD = """\
# Errors

Whatever genkit raises on purpose is a [`GenkitError`](#genkiterror). Its message says what was
found, where, what is known, and what to do. The command `genkit` prints it without a traceback,
which `--debug` adds.

## Exit status
"""

_REFUSED = (
    "It failed, for one of the reasons below, which is written to standard error. Or the answer is "
    "no: a law is broken, two recipes differ, a recipe cannot be read."
)


def error_page(module: ModuleType) -> str:
    """Every error that a module offers, which has to be every one of its package.

    Raises:
        Undocumented: an error has no docstring, or says not what to do, or is not offered, or is
            not in the module.
    """
    errors = [each for each in vars(module).values() if _is_error(each)]
    lacks = [lack for error in errors for lack in _lacks(error)]
    lacks += [
        f"error {error.__name__}: it is not in {module.__name__}.__all__"
        for error in errors
        if error.__name__ not in module.__all__
    ]
    lacks += [f"error {path}: it is not in {module.__name__}" for path in _elsewhere(module)]
    if lacks:
        raise Undocumented(lacks)
    return "\n\n".join([_head(), *map(_section, errors)])


def _head() -> str:
    statuses = [
        ["0", "It has done what it was asked for."],
        [str(FAILED), _REFUSED],
        ["2", "The command line is wrong: an unknown command or option, a missing argument."],
        [str(INTERRUPTED), "It was interrupted, as by Ctrl-C."],
        [str(PIPE_CLOSED), "Nobody reads its output any more."],
    ]
    return f"{_HEAD}\n{table(['status', 'of the command'], statuses)}"


def _section(error: type[Exception]) -> str:
    bases = [_linked(base) for base in error.__bases__]
    about, _, _ = (inspect.getdoc(error) or "").partition(ADVICE.strip())
    return "\n\n".join(
        [
            f"## {error.__name__}",
            f"A kind of {' and of '.join(bases)}.",
            prose(about),
            f"**{ADVICE.strip()}** {prose(_advice(error))}",
            f"A command ends with {FAILED}.",
        ]
    )


def _advice(error: type[Exception]) -> str:
    _, _, advice = (inspect.getdoc(error) or "").partition(ADVICE.strip())
    return advice


def _linked(base: type) -> str:
    if issubclass(base, GenkitError):
        return f"[`{base.__name__}`](#{anchor(base.__name__)})"
    return f"`{base.__name__}`"


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _lacks(error: type[Exception]) -> Iterator[str]:
    if not says_something(error):
        yield f"error {error.__name__}: it has no docstring"
    elif not has_words(_advice(error)):
        yield f"error {error.__name__}: its docstring has no paragraph {ADVICE.strip()!r}"


def _elsewhere(module: ModuleType) -> Iterator[str]:
    """The paths of classes of the same package that derive from an error of a module."""
    for found in _classes(read(module.__name__.partition(".")[0])):
        bases = {each.parent.path for each in found.mro() if each.parent}
        if module.__name__ in bases and found.module.path != module.__name__:
            yield found.path


def _classes(found: griffe.Object) -> Iterator[griffe.Class]:
    for inner in found.members.values():
        if isinstance(inner, griffe.Class):
            yield inner
        if isinstance(inner, griffe.Class | griffe.Module):
            yield from _classes(inner)
