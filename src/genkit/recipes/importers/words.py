"""Settings as they are written: in a JSON file, as `name=value`, as flags of llama.cpp."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from genkit.errors import InputError
from genkit.recipes.importers import llama_cpp_flags
from genkit.recipes.importers.given import Settings

_WORDS = {"true": True, "false": False, "none": None, "null": None}

_NESTED = ("search", "extra_body", "sampling_params")
"""Objects whose settings count like those beside them: those of genai_config.json and requests."""


class Read(NamedTuple):
    """Settings, and the folder of the file that they come from, if there is one."""

    settings: Settings
    folder: Path | None


def read_words(engine: str, words: Iterable[str | os.PathLike[str]]) -> Read:
    """Read what stands on a command line; of two words that say the same, the later counts.

    Raises:
        InputError: a file cannot be read, or a word is neither a file, a pair nor a flag.
    """
    settings: dict[str, tuple[Any, str]] = {}
    folder = None
    rest = _split(engine, words)
    while rest:
        word = rest[0]
        if engine == "llama.cpp" and llama_cpp_flags.is_flag(word):
            said, used = llama_cpp_flags.read(rest)
            rest = rest[used:]
            llama_cpp_flags.merge(settings, said)
            continue
        name, equals, value = word.partition("=")
        if engine == "llama.cpp" and equals and "-" in name[1:]:
            rest = [f"--{word}", *rest[1:]]  # a flag without its dashes
            continue
        name = name.replace("-", "_")
        if equals and name.isidentifier():
            settings |= _flat({name: _value(value)}, lambda _, word=word: _cut(word))
        elif word.endswith(".json") or os.path.isfile(word):
            settings |= read_file(Path(word))
            folder = Path(word).resolve().parent
        elif not (engine == "llama.cpp" and Path(word).name.startswith("llama")):
            raise InputError(f"{word!r} is neither a JSON file nor name=value")
        rest = rest[1:]
    return Read(settings, folder)


def read_file(path: Path) -> Settings:
    """The settings in a JSON file.

    Raises:
        InputError: it cannot be read, or holds no JSON object.
    """
    try:
        data = json.loads(path.read_text("utf-8-sig"), parse_constant=str)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: this is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a JSON object is expected")
    if isinstance(data.get("search"), dict) and isinstance(data.get("model"), dict):
        ends = {"eos_token_id": data["model"].get("eos_token_id")}
        data = {**ends, "search": data["search"]}  # the rest describes the graphs
    return _flat(data, lambda name: f"{path.name}: {name}")


def settings_of(data: Mapping[str, Any]) -> Settings:
    """Settings that are given as such."""
    return _flat(data, lambda name: f"{name}={_short(data.get(name))}")


def _split(engine: str, words: Iterable[str | os.PathLike[str]]) -> Sequence[str]:
    """The words; one that holds a whole command line of llama.cpp is split."""
    rest = [os.fspath(word) for word in words]
    if engine == "llama.cpp" and len(rest) == 1 and " -" in f" {rest[0]}" and " " in rest[0]:
        try:
            return shlex.split(rest[0])
        except ValueError as error:
            raise InputError(f"the command line cannot be split: {error}") from None
    return rest


def _flat(data: Mapping[str, Any], source: Any) -> dict[str, tuple[Any, str]]:
    settings: dict[str, tuple[Any, str]] = {}
    for name, value in data.items():
        if name in _NESTED and isinstance(value, Mapping):
            for inner, item in value.items():
                settings[str(inner)] = (item, source(f"{name}.{inner}"))
        else:
            settings[str(name)] = (value, source(str(name)))
    return settings


_LOOSE_NUMBER = re.compile(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", re.IGNORECASE)
"""What JSON has no word for: `.5` and `1.`."""


def _value(text: str) -> Any:
    """JSON, a number as people write it, or a plain word."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _LOOSE_NUMBER.fullmatch(text):
        return float(text)
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def _short(value: Any) -> str:
    return _cut(shown(value))


def shown(value: Any) -> str:
    """A value in one line, as JSON."""
    return json.dumps(finite(value), ensure_ascii=False)


def finite(value: Any) -> Any:
    """A value as JSON can hold it: infinity and what is no number become text."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)


def _cut(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:49]}…"
