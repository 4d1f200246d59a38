"""The functions that an observer may have. It imports nothing heavy: whoever lists plugins does."""

from __future__ import annotations

import inspect

OBSERVATION_HOOKS = (
    "genkit_run_started",
    "genkit_step",
    "genkit_run_finished",
    "genkit_run_failed",
)


def works_later(function: object) -> str:
    """What a function is whose call does nothing yet, in words; empty for all else."""
    if not inspect.isroutine(function):  # an object that can be called
        function = inspect.getattr_static(type(function), "__call__", function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "an `async def`"
    if inspect.isgeneratorfunction(function):
        return "a generator function (it has a `yield`)"
    return ""
