"""The laws of exporters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from genkit.errors import FAILURES, GenkitError
from genkit.testing.laws.law_broken import LawBroken

__all__ = [
    "EXPORTER_LAWS",
    "LAWS_OF_WRITE",
    "broken_by_exporter",
    "why_not_ready",
    "write_broken_model",
]

EXPORTER_LAWS = {
    "is described": "it has a docstring, and each of its options a description",
    "says what is lacking": "where it cannot work, `check_ready` raises a `GenkitError`",
    "refuses a broken model": "for weights that cannot be read, `write` raises a `GenkitError`",
    "leaves the model": "`write` changes nothing in the folder of the model",
}
"""Every law of an exporter, by its name, and what it says."""

LAWS_OF_WRITE = ("refuses a broken model", "leaves the model")
"""Those that can be tried where the exporter is ready only."""

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "vocab_size": 32,
}


def broken_by_exporter(part: Any) -> Iterator[LawBroken]:
    """Each time that an exporter breaks a law. It is given no model that can be exported.

    Args:
        part: an exporter.
    """
    options = type(part).model_fields.items()
    lacking = [f"option `{name}`" for name, field in options if not _is_described(name, field)]
    lacking += [] if part.summary() else ["class"]
    if lacking:
        words = f"there is no description of its {', nor of its '.join(lacking)}"
        yield LawBroken("is described", part, words)
    try:
        part.check_ready()
    except GenkitError:
        return
    except FAILURES as error:
        yield LawBroken("says what is lacking", part, _raised(error))
        return
    yield from _broken_by_write(part)


def why_not_ready(part: Any) -> str:
    """What an exporter lacks here, so that it cannot write; empty if it is ready."""
    try:
        part.check_ready()
    except FAILURES as error:
        return str(error)
    return ""


def write_broken_model(folder: Path) -> None:
    """Put files into a folder that pass for a model's until its weights are read."""
    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"no weights")


def _broken_by_write(part: Any) -> Iterator[LawBroken]:
    with TemporaryDirectory(prefix="genkit-") as parent:
        source, out = Path(parent, "model"), Path(parent, "out")
        source.mkdir()
        out.mkdir()
        write_broken_model(source)
        before = _files(source)
        try:
            part.write(source, out, lambda line: None)
            yield LawBroken("refuses a broken model", part, "it raised nothing")
        except GenkitError:
            pass
        except FAILURES as error:
            words = f"{_raised(error)}; UnsupportedError says why in one line"
            yield LawBroken("refuses a broken model", part, words)
        after = _files(source)
        if after != before:
            changed = sorted({name for name, _ in before ^ after})
            yield LawBroken("leaves the model", part, f"it changed {', '.join(changed)}")


def _files(folder: Path) -> set[tuple[str, bytes]]:
    return {
        (path.relative_to(folder).as_posix(), path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def _is_described(name: str, field: Any) -> bool:
    return name == "type" or bool(field.description)


def _raised(error: BaseException) -> str:
    return f"raised {type(error).__name__}: {error}"
