"""`generate` and `chat` on a real terminal, with a real Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="there are no pseudo-terminals here")

_PROGRAM = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C comes from this terminal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
from genkit.cli import main
sys.exit(main())
"""
_SLOW = [
    "--set",
    "backend.text=abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "--set",
    "backend.seconds=0.15",
]


class Terminal:
    """A process that believes a person sits before it."""

    def __init__(self, *arguments: object) -> None:
        self.screen, there = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, arguments)],
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
        )
        os.close(there)
        self.shown = ""  # since the last `wait_for`

    def wait_for(self, text: str) -> str:
        """What is shown until some text appears."""
        deadline = time.monotonic() + 90
        while text not in self.shown:
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{text!r} did not appear in {self.shown!r}")
        seen, _, self.shown = self.shown.partition(text)
        return seen + text

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def end(self) -> tuple[int, str]:
        """The exit status, and what is shown until the process ends."""
        while self._read():
            pass
        return self.process.wait(timeout=90), self.shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.screen)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.screen], [], [], 90)
        data = b""
        if ready:
            with contextlib.suppress(OSError):  # how Linux says that the other side has gone
                data = os.read(self.screen, 4096)
        self.shown += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal(plugin: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*arguments: object) -> Terminal:
        opened.append(Terminal("--plugin", plugin, *arguments))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


def test_ctrl_c_ends_generate(terminal: Callable[..., Terminal], scripted: Path) -> None:
    run = terminal("generate", "-r", scripted, *_SLOW, "hi")
    run.wait_for("abc")
    run.type("\x03")
    status, rest = run.end()
    assert status == 130
    assert "cancelled, seed " in rest
    assert "z" not in rest.partition("\n")[0]
    assert "Traceback" not in rest
    assert "rror" not in rest
    assert rest.endswith("\n")


def test_ctrl_c_ends_an_answer_and_the_chat_goes_on(
    terminal: Callable[..., Terminal], scripted: Path
) -> None:
    run = terminal("chat", "-r", scripted, *_SLOW)
    run.wait_for("> ")
    run.type("hi\n")
    run.wait_for("abc")
    run.type("\x03")
    assert "z" not in run.wait_for("[interrupted]")
    run.wait_for("> ")
    run.type("again\n")
    run.wait_for("abc")
    run.type("\x03")
    run.wait_for("[interrupted]")
    run.wait_for("> ")
    run.type("\x04")
    status, rest = run.end()
    assert (status, "Traceback" in rest) == (0, False)
