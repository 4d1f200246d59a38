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


FAILURES = (Exception, SystemExit)
"""What counts as a failure of a part: it may well call `sys.exit`, and that must end no program."""


class GenkitError(Exception):
    """Whatever genkit raises on purpose. Its text is one message for a person.

    What to do: catch it where every failure is answered alike; to tell failures apart, catch those
    that derive from it.
    """


class OptionProblem(NamedTuple):
    """One wrong option: the path of keys that leads to it, what is wrong, and what was found."""

    path: tuple[str | int, ...]
    message: str
    found: Any


class OptionError(GenkitError, ValueError):
    """An option of a part is unknown, missing or out of range.

    `problems` lists each of them with its key path, so that a recipe can say file and line.

    What to do: give a value that the message names; ``genkit parts KIND NAME`` lists the options.
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

    What to do: mend every line that the message names; ``genkit recipes check FILE`` reads the file
    again, without loading a model.
    """

    def __init__(self, problems: Iterable[RecipeProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class UnknownNameError(GenkitError, LookupError):
    """Nothing is registered under the name that was asked for.

    `kind` and `name` say what that was, `known` is every name there is.

    What to do: take the name that the message proposes, or one that it lists. A name that a plugin
    brings is known only where the plugin is installed and loads: ``genkit plugins list``.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        listed = ", ".join(self.known) or "none"
        super().__init__(
            f"there is no {kind} named {name!r}{nearest(name, self.known)}; known: {listed}"
            + (f". {hint}" if hint else "")
        )


class PluginError(GenkitError):
    """A plugin cannot be loaded, or two plugins claim the same name.

    What to do: mend the plugin, whose name and fault the message gives, or go on without it:
    ``GENKIT_DISABLE_PLUGINS=NAME``.
    """


class MissingPackageError(GenkitError, ImportError):
    """An optional package is needed and not installed; `advice` says how to get it.

    What to do: install it with the command that the message ends with.
    """

    def __init__(self, package: str, advice: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: {advice}"
        )


class InputError(GenkitError, ValueError):
    """A prompt, a seed or a token id that cannot be used.

    What to do: give another one; the message says what was found, and what is taken.
    """


class ContextLengthError(InputError):
    """A prompt is too long for the model's context.

    What to do: shorten it, ask for fewer new tokens, or drop its oldest ids with
    ``context.overflow: truncate_left``.
    """


class UnsupportedError(GenkitError):
    """Two parts cannot work together, or one cannot do what is asked of it.

    It is raised before anything is generated, where that can be known.

    What to do: change one of the two that the message names, or leave it out.
    """


class ModelLoadError(GenkitError):
    """A model or its tokenizer cannot be loaded.

    What to do: see that the place which the message names holds what it says is missing or damaged;
    ``genkit doctor`` shows which backends can be used here.
    """


class RunError(GenkitError):
    """A run failed after it had begun. What had been generated is in `partial_results`.

    What to do: read `partial_results`, a list of `Result`, one for each row of the call, if what
    there is will do. A class that derives from it says what failed.
    """

    partial_results: list[Any]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.partial_results = []


class ModelOutputError(RunError):
    """The model gave logits that nothing can be drawn from: NaN, infinity or the wrong shape.

    What to do: try a wider `dtype`, such as ``float32``, or another file of the model. The
    processor `remove_invalid` goes on with the logits that can be used.
    """


class EmptyRowError(RunError):
    """Every token of a row is forbidden. The message names the part that forbade the last of them.

    What to do: loosen that part or one before it, such as a list of allowed tokens that leaves out
    the end token.
    """


class PartError(RunError):
    """A part raised an exception or broke the contract of its kind.

    The message names the part and the step; an exception of the part is the `__cause__`.

    What to do: mend the part. ``genkit plugins check`` finds what it breaks, with the smallest run
    in which it does.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'top_k'?` for a name that is nearly a known one, otherwise nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
