"""Text that comes in: arguments, files, standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import typer

from genkit.errors import InputError

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL)
_MEANINGS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "0": "\0",
    "\\": "\\",
    '"': '"',
    "'": "'",
}


def read_text(what: str, argument: str | None, file: Path | None = None) -> str:
    """The text of a command: its argument, a file, or standard input.

    Standard input is read where the argument is `-`, or where there is no argument and somebody
    pipes text in. The line break that ends a file or a pipe is no part of the text.

    Raises:
        typer.BadParameter: there is no text, or there are two.
        InputError: the text is empty, or not UTF-8, or there is no standard input.
    """
    if file is not None:
        if argument is not None:
            raise typer.BadParameter(f"give {what} or a file with it, not both")
        text = _without_line_break(_decode(file.read_bytes(), str(file)))
    elif argument is None and (sys.stdin is None or sys.stdin.isatty()):
        raise typer.BadParameter(f"give {what}, or pipe it in")
    elif argument is None or argument == "-":
        text = _without_line_break(_read_standard_input())
    else:
        text = argument
    return check_text(what, text)


def read_lines() -> Iterator[str]:
    """The lines of standard input as they come, without their line breaks.

    Raises:
        InputError: a line is not UTF-8, or there is no standard input.
    """
    stdin = _standard_input()
    source = getattr(stdin, "buffer", stdin)
    while line := source.readline():
        text = line if isinstance(line, str) else _decode(line, "standard input")
        yield _without_line_break(text)


def check_text(what: str, text: str) -> str:
    """The text itself, if there is any and it is one.

    Raises:
        InputError: it is empty, or bytes of it are no UTF-8.
    """
    if not text:
        raise InputError(f"{what} is empty; give some text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not UTF-8: wrong at character {error.start}") from None
    return text


def unescape(text: str) -> str:
    r"""The text that escapes stand for: `\n`, `\t`, `\\`, `\xHH`, `\uHHHH`, `\UHHHHHHHH`, ...

    Raises:
        InputError: there is no such escape.
    """
    replaced = _ESCAPE.sub(_meaning, text)
    try:  # an emoji may be written as two escapes, as in JSON
        return replaced.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise InputError(f"--escapes: {text!r} has half a surrogate pair") from None


def _meaning(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        if number < 0x110000:
            return chr(number)
    elif code in _MEANINGS:
        return _MEANINGS[code]
    known = ", ".join(f"\\{letter}" for letter in _MEANINGS)
    raise InputError(
        rf"--escapes: \{code} is no escape; known are {known}, \xHH, \uHHHH and \UHHHHHHHH, and a "
        r"backslash is written \\"
    )


def _read_standard_input() -> str:
    stdin = _standard_input()
    buffer = getattr(stdin, "buffer", None)
    return stdin.read() if buffer is None else _decode(buffer.read(), "standard input")


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise InputError("standard input is closed")
    return sys.stdin


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8: byte {error.start} is wrong") from None


def _without_line_break(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
