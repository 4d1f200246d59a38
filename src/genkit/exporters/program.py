"""Runs another Python program to its end, quietly.

Exporters patch libraries, print pages and keep memory, so each runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from genkit.errors import UnsupportedError

_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Implemented)\w*: (.*)")
_CONTEXT = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"


def run_python(arguments: Sequence[str], purpose: str, python: str = sys.executable) -> None:
    """Run Python with these arguments. An interrupt ends the program, too.

    Args:
        arguments: as for the interpreter, such as ``["-m", "module", "--option"]``.
        purpose: begins the error message.
        python: the interpreter.

    Raises:
        UnsupportedError: the program cannot be started or fails; says why in one line, and has all
            that was printed as its cause.
    """
    # What is called like a library and lies in the user's folder must not be imported; and nothing
    # is to be asked of the hub about a model that is a folder here.
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        try:
            # Into a file: a pipe would be waited for as long as any program that was started on the
            # way holds it.
            done = subprocess.run(
                [os.path.abspath(python) if os.sep in python else python, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )
        except OSError as error:
            raise UnsupportedError(f"{purpose}: {python} cannot be run: {error.strerror}") from None
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if done.returncode < 0:
        raise UnsupportedError(
            f"{purpose}: it was ended from outside, by signal {-done.returncode}; signal 9 often "
            "means that memory was short"
        ) from ProgramFailedError(printed)
    if done.returncode:
        raise UnsupportedError(f"{purpose}: {reason(printed)}") from ProgramFailedError(printed)


class ProgramFailedError(Exception):
    """All that a program printed before it failed."""


def reason(printed: str, longest: int = 300) -> str:
    """Why a program failed, in one line: what its last exception goes back to.

    Args:
        printed: all its output, with the traceback that Python prints.
        longest: the most letters.
    """
    last = printed.rpartition(_CONTEXT)[2]
    for part in last.split(_CAUSE):
        if found := [m for line in part.splitlines() if (m := _EXCEPTION.fullmatch(line.strip()))]:
            told = found[-1][1] or found[-1][0]
            break
    else:
        told = " ".join(printed.split()[-40:]) or "it failed without a word"
    return told if len(told) <= longest else told[:longest].rsplit(" ", 1)[0] + " ..."
