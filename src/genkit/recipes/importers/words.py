"""Settings as they are written: in a JSON file, as `name=value`, as flags of a program."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genkit.errors import InputError
from genkit.recipes.importers.flags import Flags, FlagSaid, is_flag
from genkit.recipes.importers.given import Unsaid, shorten
from genkit.recipes.importers.llama_cpp_flags import LLAMA_CPP
from genkit.recipes.importers.mlx_flags import MLX

FLAGS: Mapping[str, Flags] = {flags.engine: flags for flags in (LLAMA_CPP, MLX)}
"""By engine: the flags of its programs."""

_WORDS = {"true": True, "false": False, "none": None, "null": None}

_NESTED = ("search", "extra_body", "sampling_params")
"""Objects whose settings count before those beside them: in genai_config.json and requests."""


@dataclass
class Read:
    """Settings, one after the other; of two that say the same, the later counts.

    Attributes:
        settings: by name, the value and where it was said.
        folder: of the file that they come from, if there is one.
        replaced: what a later word has said otherwise.
    """

    settings: dict[str, tuple[Any, str]] = field(default_factory=dict)
    folder: Path | None = None
    replaced: list[Unsaid] = field(default_factory=list)
    _growing: set[str] = field(default_factory=set)

    def add(self, name: str, value: Any, source: str) -> None:
        """Take a setting in."""
        before, _ = self.settings.get(name, (None, ""))
        if before is not None and before != value:
            self.replaced.append(Unsaid(name, before, f"{source} says it too, and counts"))
        self.settings[name] = (value, source)
        self._growing.discard(name)

    def add_flag(self, said: FlagSaid) -> None:
        """Take a flag in; one that may come several times adds to what it has said before."""
        if said.adds and said.name in self._growing:
            earlier, source = self.settings[said.name]
            self.settings[said.name] = ([*earlier, said.value], shorten(f"{source}, {said.words}"))
        else:
            self.add(said.name, [said.value] if said.adds else said.value, shorten(said.words))
            self._growing |= {said.name} if said.adds else set()

    def add_all(self, data: Mapping[str, Any], source: Callable[[str, Any], str]) -> None:
        """Take an object in; `source` says where a name and its value stand."""
        for name, value, path in _flat(data):
            self.add(name, value, source(path, value))


def read_words(engine: str, words: Iterable[str | os.PathLike[str]]) -> Read:
    """Read what stands on a command line.

    Raises:
        InputError: a file cannot be read, or a word is neither a file, a pair nor a flag.
    """
    read, flags = Read(), FLAGS.get(engine)
    rest = [os.fspath(word) for word in words]
    if flags is not None:
        _add_command(read, flags, _split(rest))
        return read
    for word in rest:
        _add_word(read, word)
    return read


def _add_command(read: Read, flags: Flags, rest: Sequence[str]) -> None:
    """Take a command line of a program in, and then its defaults; or settings alone."""
    has_flags = False
    while rest:
        word, used = rest[0], 1
        if is_flag(word) or _is_bare_flag(word):
            said, used = flags.read([word if is_flag(word) else f"--{word}", *rest[1:]])
            read.add_flag(said)
            has_flags |= is_flag(word)
        elif not _is_program(flags, word):
            _add_word(read, word)
        rest = rest[used:]
    for name, value in flags.defaults.items() if has_flags else ():
        read.settings.setdefault(name, (value, f"default of {flags.program}'s programs"))


def _is_bare_flag(word: str) -> bool:
    """Whether it is a flag with its value, without its dashes."""
    name, equals, _ = word.partition("=")
    return bool(equals) and "-" in name and name.replace("-", "_").isidentifier()


def _is_program(flags: Flags, word: str) -> bool:
    is_setting = "=" in word or word.endswith(".json") or os.path.isfile(word)
    return not is_setting and Path(word).name.startswith(flags.program)


def _add_word(read: Read, word: str) -> None:
    name, equals, value = word.partition("=")
    name = name.replace("-", "_")
    if equals and name.isidentifier():
        read.add_all({name: _value(value, word)}, lambda *_: shorten(word))
    elif word.endswith(".json") or os.path.isfile(word):
        path = Path(word)
        read.add_all(read_file(path), lambda name, _: f"{path.name}: {name}")
        read.folder = path.resolve().parent
    else:
        raise InputError(f"{shorten(word)!r} is neither a JSON file nor name=value")


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a JSON file.

    Raises:
        InputError: it cannot be read, holds no JSON object, or says something twice.
    """
    try:
        data = _parsed(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{shorten(str(path))}: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: this is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a JSON object is expected")
    if isinstance(data.get("search"), dict) and isinstance(data.get("model"), dict):
        ends = {"eos_token_id": data["model"].get("eos_token_id")}
        data = {**ends, "search": data["search"]}  # the rest describes the graphs
    return data


def settings_of(data: Mapping[str, Any]) -> Read:
    """Settings that are given as such."""
    read = Read()
    read.add_all(data, lambda name, value: f"{name}={_short(value)}")
    return read


def _split(words: list[str]) -> list[str]:
    """The words; one that holds a whole command line is split."""
    if len(words) != 1 or " -" not in f" {words[0]}" or " " not in words[0]:
        return words
    try:
        return shlex.split(words[0])
    except ValueError as error:
        raise InputError(f"the command line cannot be split: {error}") from None


def _flat(data: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any, str]]:
    """Names, values and paths; those of nested objects come last, since they count."""
    nested = {name for name in _NESTED if isinstance(data.get(name), Mapping)}
    for name, value in data.items():
        if name not in nested:
            yield str(name), value, f"{where}{name}"
    for name in _NESTED:
        if name in nested:
            yield from _flat(data[name], f"{where}{name}.")


_LOOSE_NUMBER = re.compile(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", re.IGNORECASE)
"""What JSON has no word for: `.5` and `1.`."""


def _value(text: str, word: str) -> Any:
    """JSON, a number as people write it, or a plain word."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _LOOSE_NUMBER.fullmatch(text):
        return float(text)
    try:
        return _parsed(text)
    except InputError as error:
        raise InputError(f"{shorten(word)}: {error}") from None
    except (ValueError, RecursionError):
        return text


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=str, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, which is read in different ways if it has a key twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"the key {name!r} stands twice in an object; leave one of them out")
        found[name] = value
    return found


def _short(value: Any) -> str:
    return shorten(shown(value))


def shown(value: Any) -> str:
    """A value in one line, as JSON."""
    return json.dumps(finite(value), ensure_ascii=False)


def finite(value: Any) -> Any:
    """A value as JSON can hold it: infinity and what is no number become text."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)
