"""The flags of a program, read as settings of its engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from genkit.errors import InputError, nearest

_NEGATIVE = re.compile(r"-\.?\d")


class FlagSaid(NamedTuple):
    """What one flag says, and whether it is added to what others said before."""

    name: str
    value: Any
    words: str
    adds: bool = False


def is_flag(word: str) -> bool:
    """Whether a word names a flag; a negative number does not."""
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word)


def number(text: str) -> float:
    """The number of a flag."""
    try:
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    except ValueError:
        raise ValueError("a number is expected") from None


@dataclass(frozen=True)
class Flags:
    """The flags of a program, and the setting that each of them is.

    Attributes:
        engine: whose they are.
        program: how the names of its programs begin.
        numbers: flags with a number.
        texts: flags with a text.
        lists: flags that may come several times.
        switches: flags without a value, and the value that they stand for.
        readers: how the values of flags are read that are no plain numbers and texts.
        defaults: settings for which the program has another default than the engine.
    """

    engine: str
    program: str
    numbers: Mapping[str, str]
    texts: Mapping[str, str]
    lists: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    readers: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, words: Sequence[str]) -> tuple[FlagSaid, int]:
        """What the first flag says, and how many words it takes.

        Raises:
            InputError: its value is missing or is none.
        """
        flag, equals, attached = words[0].partition("=")
        if flag in self.switches and not equals:
            return FlagSaid(*self.switches[flag], flag), 1
        values = {**self.numbers, **self.texts, **self.lists}
        rest = [attached] if equals else list(words[1:2])
        if flag in values and not rest:
            raise InputError(f"{flag}: a value is missing")
        used = 1 if equals else 2
        said = " ".join(words[:used])
        if flag in values:
            return FlagSaid(
                values[flag], self._value(flag, rest[0]), said, flag in self.lists
            ), used
        # One that is not known has a value where something follows that is no flag.
        if rest and (equals or not is_flag(rest[0])):
            return FlagSaid(flag, rest[0], said), used
        return FlagSaid(flag, True, flag), 1

    def unknown(self, name: str) -> str:
        """Why a flag is none."""
        known = [*self.numbers, *self.texts, *self.lists, *self.switches]
        return f"it is no flag of {self.engine} that is about the answer{nearest(name, known)}"

    def _value(self, flag: str, text: str) -> Any:
        plain = number if flag in self.numbers else str
        try:
            return self.readers.get(flag, plain)(text)
        except ValueError as error:
            raise InputError(f"{flag}: {error}, found {text!r}") from None
