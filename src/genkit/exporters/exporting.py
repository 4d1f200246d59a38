"""Exports a model: into a folder that is complete, checked, or not there."""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genkit.backends.base import ModelSource, Progress
from genkit.backends.json_files import EXPORT_REPORT
from genkit.backends.pytorch import PyTorch
from genkit.errors import InputError, UnsupportedError
from genkit.exporters.base import Exporter, Precision
from genkit.exporters.checking import Comparison, compare
from genkit.exporters.packages import versions
from genkit.exporters.source import check_source, load_module

_SETTINGS = (
    "config.json",
    "generation_config.json",
    "genkit.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab.*",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "tekken.json",
)
"""The files of a model folder that a graph needs beside it. Weights are not among them."""


@dataclass(frozen=True)
class Export:
    """What has been written.

    Attributes:
        path: the folder.
        source: what the user called the model.
        exporter: the name of the part.
        precision: of the weights.
        comparison: with the source.
        context_length: the most tokens of one row of the source, which knows more than its settings
            say; None if there is no limit.
    """

    path: Path
    source: str
    exporter: str
    precision: Precision
    comparison: Comparison
    context_length: int | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        found = self.comparison
        return {
            "path": str(self.path),
            "source": self.source,
            "exporter": self.exporter,
            "precision": self.precision,
            "context_length": self.context_length,
            "max_logit_error": found.max_logit_error,
            "largest_logit": found.largest_logit,
            "num_places": found.num_places,
            "num_agreeing": found.num_agreeing,
            "shapes": [asdict(shape) for shape in found.shapes],
            "versions": versions(),
        }


def export(
    model: str,
    out: Path,
    exporter: Exporter,
    *,
    models: Mapping[str, ModelSource] | None = None,
    progress: Progress | None = None,
) -> Export:
    """Write a model as an ONNX graph, compare it with the source, and only then let it appear.

    The folder is complete: a recipe names it as `backend: {type: onnxruntime, model: OUT}`.

    Args:
        model: what the backend `pytorch` accepts.
        out: the folder to be made; it may be there if it is empty.
        exporter: does the work.
        models: the registered names, and where each of them is.
        progress: told what takes long.

    Raises:
        InputError: `out` cannot be used.
        ModelLoadError, UnknownNameError: the model cannot be loaded.
        MissingPackageError, UnsupportedError: it cannot be exported, or what was written does not
            compute what the model does. Nothing is left of it.
    """
    refuse_occupied(out)
    exporter.check_ready()
    report = progress or (lambda line: None)
    source = PyTorch(model=model).folder(models=models, progress=report)
    check_source(source)
    with _appearing(out) as part:
        exporter.write(source, part, report)
        if not any(part.rglob("*.onnx")):
            raise UnsupportedError(f"the exporter {exporter.type!r} has written no graph")
        copy_settings(source, part)
        report("comparing the graph with the model")
        original = PyTorch.wrap(load_module(source))
        found = compare(original, _load(part, exporter.graph_provider))
        found.refuse_what_differs(exporter.precision)
        length = original.context_length
        done = Export(out, model, exporter.type, exporter.precision, found, length)
        kept = {key: value for key, value in done.to_dict().items() if key != "path"}
        (part / EXPORT_REPORT).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return done


def refuse_occupied(out: Path) -> None:
    """Refuse a place that is taken, or that cannot be made.

    Raises:
        InputError: it is.
    """
    if out.is_symlink():
        raise InputError(f"{out} is a link; name a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; name a new folder, or empty this one")
    if out.is_dir() and out.resolve() == Path.cwd():
        raise InputError(f"{out} is the folder that you are in; name a new one")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a new folder")
    if not out.absolute().parent.is_dir():
        raise InputError(f"there is no folder {out.absolute().parent} to make {out.name} in")


def copy_settings(source: Path, out: Path) -> None:
    """Put the settings and the tokenizer of a model beside its graph, in place of an exporter's."""
    for pattern in _SETTINGS:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, out / path.name)


def _load(folder: Path, provider: str) -> Any:
    from genkit.backends.onnxruntime_ import OnnxRuntime

    return OnnxRuntime(model=str(folder), provider=provider).load()


@contextlib.contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `out` if all goes well, and is gone otherwise."""
    part = out.absolute().with_name(f"{out.name}.part-{uuid.uuid4().hex[:8]}")
    try:
        part.mkdir()
    except OSError as error:
        raise InputError(f"{out} cannot be made: {error.strerror}; name another folder") from error
    try:
        yield part
        for path in part.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # libraries write some for the owner only
        try:
            if out.is_dir():
                out.rmdir()
            part.rename(out)
        except OSError as error:
            raise InputError(
                f"{out} has been taken meanwhile ({error.strerror}); export into another folder"
            ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)  # there is none if all went well
