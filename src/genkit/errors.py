"""Every error genkit raises, in one tree.

::

    GenkitError
    ├── OptionError            an option is unknown, missing or out of range (also a ValueError)
    ├── RecipeError            a recipe cannot be read; names file, line and key path
    ├── UnknownNameError       nothing is registered under that name; names the nearest one
    ├── PluginError            a plugin cannot be loaded, or two of them clash
    ├── MissingPackageError    an optional package is not installed; names the extra that brings it
    ├── InputError             a prompt, seed or id cannot be used (also a ValueError)
    │   └── ContextLengthError the prompt does not fit into the model's context
    ├── UnsupportedError       two parts cannot work together; names both
    ├── ModelLoadError         a model or tokenizer cannot be loaded
    └── RunError               a run failed after it had begun; carries `partial_results`
        ├── ModelOutputError   the model gave NaN, infinity or the wrong shape; names the step
        ├── EmptyRowError      no token is allowed in a row; names the part that emptied it
        └── PartError          a part raised, or broke its contract; names part and step

An error states what was found, where, what is known, and what to do. Errors and keyboard
interrupts during a run carry `partial_results`, a list of `Result`, one for each row of the call.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = [
    "ContextLengthError",
    "EmptyRowError",
    "GenkitError",
    "InputError",
    "MissingPackageError",
    "ModelLoadError",
    "ModelOutputError",
    "OptionError",
    "OptionProblem",
    "PartError",
    "PluginError",
    "RecipeError",
    "RecipeProblem",
    "RunError",
    "UnknownNameError",
    "UnsupportedError",
    "nearest",
]


class GenkitError(Exception):
    """Whatever genkit raises on purpose. Its text is one message for a person."""


class OptionProblem(NamedTuple):
    """One wrong option: the path of keys that leads to it, what is wrong, and what was found."""

    path: tuple[str | int, ...]
    message: str
    found: Any


class OptionError(GenkitError, ValueError):
    """An option of a part is unknown, missing or out of range.

    `problems` lists each of them with its key path, so that a recipe can say file and line.
    """

    def __init__(self, part: str, problems: Iterable[OptionProblem]) -> None:
        self.part = part
        self.problems = tuple(problems)
        lines = [
            f"{'.'.join(map(str, problem.path)) or part}: {problem.message}"
            for problem in self.problems
        ]
        super().__init__(f"{part}: " + "; ".join(lines))


class RecipeProblem(NamedTuple):
    """One thing wrong with a recipe: where it is, the path of keys that leads there, and what.

    `place` is `file:line:column`, or as much of it as is known; `path` is empty for the whole file.
    """

    place: str
    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        keys = ".".join(map(str, self.path))
        return ": ".join(filter(None, (self.place, keys, self.message)))


class RecipeError(GenkitError):
    """A recipe cannot be read, or says something that cannot be built.

    `problems` lists everything that is wrong with it, each with its place.
    """

    def __init__(self, problems: Iterable[RecipeProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class UnknownNameError(GenkitError, LookupError):
    """Nothing is registered under the name that was asked for."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        listed = ", ".join(self.known) or "none"
        super().__init__(
            f"there is no {kind} named {name!r}{nearest(name, self.known)}; known: {listed}"
            + (f". {hint}" if hint else "")
        )


class PluginError(GenkitError):
    """A plugin cannot be loaded, or two plugins claim the same name."""


class MissingPackageError(GenkitError, ImportError):
    """An optional package is needed and not installed; `advice` says how to get it."""

    def __init__(self, package: str, advice: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: {advice}"
        )


class InputError(GenkitError, ValueError):
    """A prompt, a seed or a token id that cannot be used."""


class ContextLengthError(InputError):
    """A prompt is too long for the model's context."""


class UnsupportedError(GenkitError):
    """Two parts cannot work together."""


class ModelLoadError(GenkitError):
    """A model or its tokenizer cannot be loaded."""


class RunError(GenkitError):
    """A run failed after it had begun. What had been generated is in `partial_results`."""

    partial_results: list[Any]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.partial_results = []


class ModelOutputError(RunError):
    """The model gave logits that nothing can be drawn from."""


class EmptyRowError(RunError):
    """Every token of a row is forbidden."""


class PartError(RunError):
    """A part raised an exception or broke the contract of its kind."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'top_k'?` for a name that is nearly a known one, otherwise nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
