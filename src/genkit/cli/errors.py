"""How an error reaches the person who typed the command."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

import typer

from genkit.errors import GenkitError

FAILED, INTERRUPTED, PIPE_CLOSED = 1, 130, 141


def report(error: BaseException, debug: bool = False) -> int:
    """Say what went wrong on standard error; returns the exit status."""
    if isinstance(error, KeyboardInterrupt):
        typer.echo(err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        drop_output()
        return PIPE_CLOSED
    if debug:
        traceback.print_exception(error)
    typer.echo(f"error: {describe(error)}", err=True)
    return FAILED


def describe(error: BaseException) -> str:
    """An error in words, with the notes that were added on its way."""
    notes = getattr(error, "__notes__", [])
    if isinstance(error, GenkitError):
        return "\n".join([str(error), *(f"  {note}" for note in notes)])
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror}"
    what = " ".join(str(error).split())
    kind = type(error).__name__
    return "\n  ".join([f"{kind}: {what}" if what else kind, *notes, "--debug shows where"])


def drop_output() -> None:
    """Nobody reads standard output any more: what is still buffered must not raise at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)
