"""The command line: one file a command, and what they share.

Nothing heavy is imported here or at the head of a command's file: `genkit --help` must be quick, so
every command imports what it works with when it is called. Here nearly nothing is: what Ctrl-C
interrupts before `main` has begun ends in a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: the arguments, without the program's name; by default those of the process.
    """
    try:
        from genkit.cli.app import run

        return run(argv)
    except KeyboardInterrupt:  # while the app was imported
        if sys.stderr is not None:
            sys.stderr.write("\n")
        return 130
