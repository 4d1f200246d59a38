"""What an engine was given: settings under its own names, taken one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from genkit.errors import nearest
from genkit.recipes.document import describe

Settings = Mapping[str, tuple[Any, str]]
"""By the engine's name: the value, and where it was said, as `--top-k` or `file.json: top_k`."""

Aside = Mapping[str, tuple[Any, str]]
"""Settings that a recipe has no place for: the value that changes nothing, and why."""


class Said(NamedTuple):
    """The value of one setting, and who says so."""

    name: str
    value: Any
    source: str
    is_given: bool

    def but(self, value: Any) -> Said:
        """Another value that follows from this one."""
        return self._replace(value=value)


class Unsaid(NamedTuple):
    """A setting that is not in the recipe, or not as the engine means it, and why."""

    setting: str
    value: Any
    reason: str


class Given:
    """The settings, of which the importer of an engine takes what it knows.

    Attributes:
        engine: its name.
        unsaid: what a recipe cannot say.
        refused: what the engine itself would not accept, a sentence each.
    """

    def __init__(self, engine: str, settings: Settings, unsaid: Iterable[Unsaid] = ()) -> None:
        self.engine = engine
        self.unsaid = list(unsaid)
        self.refused: list[str] = []
        self._settings = {name: said for name, said in settings.items() if said[0] is not None}
        self._known: set[str] = set()

    def take(self, *names: str, default: Any = None, read: Callable[[Any], Any]) -> Said:
        """A setting, under the first of its names that was given."""
        self._known.update(names)
        found = [name for name in names if name in self._settings]
        taken = [Said(name, *self._settings.pop(name), is_given=True) for name in found]
        if not taken:
            return Said(names[0], default, f"default of {self.engine}", is_given=False)
        for other in taken[1:]:
            self.leave(other, f"{taken[0].name} says it too, and counts")
        try:
            return taken[0].but(read(taken[0].value))
        except ValueError as error:
            self.refuse(taken[0], str(error))
            return taken[0].but(default)

    def number(
        self,
        *names: str,
        default: float | None = None,
        least: float = -math.inf,
        most: float = math.inf,
        above: float = -math.inf,
    ) -> Said:
        """A number, and the range that the engine accepts."""
        said = self.take(*names, default=default, read=as_number)
        return self._within(said, default, least, most, above)

    def whole(
        self, *names: str, default: int | None = None, least: float = -math.inf, most: int = 2**63
    ) -> Said:
        """A whole number, and the range that the engine accepts."""
        said = self.take(*names, default=default, read=as_whole)
        return self._within(said, default, least, most, -math.inf)

    def flag(self, name: str, default: bool = False) -> Said:
        """True or false."""
        return self.take(name, default=default, read=as_flag)

    def text(self, *names: str) -> Said:
        """Some text."""
        return self.take(*names, read=as_text)

    def texts(self, *names: str, default: Iterable[str] = ()) -> Said:
        """A list of texts, or one."""
        return self.take(*names, default=list(default), read=as_texts)

    def ids(self, name: str) -> Said:
        """A list of token ids, or one."""
        return self.take(name, default=[], read=as_ids)

    def sequences(self, *names: str) -> Said:
        """A list of lists of token ids."""
        return self.take(*names, default=[], read=as_sequences)

    def biases(self, most: float = math.inf) -> Said:
        """What is added to the logits of some ids; of an id that comes twice, the sum.

        An entry that a recipe cannot hold is left out, and noted.

        Args:
            most: how far from 0 a bias may be; an engine that has such a limit refuses the rest.
        """
        said = self.take("logit_bias", default=[], read=as_pairs)
        usable: dict[int, float | str] = {}
        for token, bias in said.value:
            try:
                token_id, number = as_token_id(token), as_bias(bias, most)
            except ValueError as error:
                if most < math.inf:
                    entry = shorten(f"{token!r}: {bias!r}")
                    self.refused.append(f"{said.source}: {self.engine} refuses {entry}: {error}")
                else:
                    self.leave(said.but({str(token): bias}), str(error))
                continue
            forbidden = "-inf" in (number, usable.get(token_id))
            usable[token_id] = (
                "-inf" if forbidden else float(usable.get(token_id, 0)) + float(number)
            )
        return said.but(usable)

    def leave(self, said: Said, reason: str) -> None:
        """Note that a recipe does not say a setting."""
        self.unsaid.append(Unsaid(said.name, said.value, reason))

    def leave_idle(self, settings: Iterable[Said], reason: str) -> None:
        """Note settings that do nothing in the engine itself."""
        for said in settings:
            if said.is_given:
                self.leave(said, reason)

    def refuse(self, said: Said, reason: str) -> None:
        """Note that the engine would not accept a value."""
        self.refused.append(f"{said.source}: {reason}, found {shorten(describe(said.value))}")

    def finish(self, aside: Aside) -> None:
        """Note what nobody has taken: settings that no recipe has, and those that do not exist."""
        for name, (value, _) in self._settings.items():
            if name in aside:
                neutral, reason = aside[name]
                if value != neutral:
                    self.unsaid.append(Unsaid(name, value, reason))
            else:
                close = nearest(name, sorted(self._known | aside.keys()))
                reason = f"{self.engine} has no setting of this name{close}"
                self.unsaid.append(Unsaid(name, value, reason))
        self._settings = {}

    def _within(
        self, said: Said, default: float | None, least: float, most: float, above: float
    ) -> Said:
        if not said.is_given or said.value is None:
            return said
        if least <= said.value <= most and said.value > above:
            return said
        limits = [
            f"above {above:g}" if above > -math.inf else "",
            f"at least {least:g}" if least > -math.inf else "",
            f"at most {most:g}" if most < 2**63 else "",
        ]
        self.refuse(said, f"{self.engine} wants {said.name} {' and '.join(filter(None, limits))}")
        return said.but(default)


def shorten(text: str) -> str:
    """A text that may be long, for a comment or a message."""
    return text if len(text) <= 50 else f"{text[:49]}…"


_LARGEST = 1e300
"""A larger whole number may be no float at all."""

_ID = re.compile(r"0|[1-9]\d{0,18}")


def as_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return value
    raise ValueError("a number is expected")


def as_whole(value: Any) -> int:
    """A whole number; 5.0 is one."""
    if as_number(value) != int(value):
        raise ValueError("a whole number is expected")
    return int(value)


def as_flag(value: Any) -> bool:
    """True or false, also as 1 and 0."""
    if value in (True, False):
        return bool(value)
    raise ValueError("true or false is expected")


def as_text(value: Any) -> str:
    """Text."""
    if isinstance(value, str):
        return value
    raise ValueError("text is expected")


def as_texts(value: Any) -> list[str]:
    """A list of texts, or one."""
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list | tuple):
        return [as_text(item) for item in items]
    raise ValueError("a list of texts is expected")


def as_ids(value: Any) -> list[int]:
    """A list of token ids, or one."""
    items = value if isinstance(value, list | tuple) else [value]
    return [as_whole(item) for item in items]


def as_sequences(value: Any) -> list[list[int]]:
    """A list of lists of token ids."""
    if isinstance(value, list | tuple) and all(isinstance(item, list | tuple) for item in value):
        return [as_ids(item) for item in value]
    raise ValueError("a list of lists of token ids is expected")


def as_pairs(value: Any) -> list[tuple[Any, Any]]:
    """A mapping, or a list of pairs."""
    try:
        return [
            (key, item) for key, item in (value.items() if isinstance(value, Mapping) else value)
        ]
    except (TypeError, ValueError):
        raise ValueError("a mapping from token ids to numbers is expected") from None


def as_token_id(value: Any) -> int:
    """A token id, also as the key of a JSON object: `"15043"`."""
    if isinstance(value, str):
        if not _ID.fullmatch(value):
            raise ValueError("an entry names a token by its id; text falls into several tokens")
        return int(value)
    return as_whole(value)


def as_bias(value: Any, most: float = math.inf) -> float | str:
    """A number that may be added to a logit; without a limit `false` and -inf forbid."""
    from genkit.components.processors.bias import LARGEST_BIAS

    is_free = most == math.inf
    if is_free and (value is None or value is False or str(value) in ("-inf", "-Infinity")):
        return "-inf"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not abs(number) <= min(most, LARGEST_BIAS):
        free = "a bias is -inf, or a number up to 1e6"
        raise ValueError(free if is_free else f"a bias is a number from {-most:g} to {most:g}")
    return number
