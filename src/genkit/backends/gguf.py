"""Converts a GGUF file, once, into a folder that loads like any other model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import save_file

from genkit.backends.base import Progress
from genkit.backends.gguf_file import check_magic
from genkit.errors import GenkitError, ModelLoadError
from genkit.home import home

CONVERTER_VERSION = 1
"""Counted up whenever the same file would give another folder."""

_SHARD_BYTES = 2 << 30
_ORIGIN = "genkit.json"  # says where a converted folder comes from


def converted(path: Path, progress: Progress) -> Path:
    """The folder of a GGUF file's model under `GENKIT_HOME`; converts it if nobody has yet.

    The folder's name holds the SHA-256 of the file and the version of the converter. It appears
    complete or not at all; if two processes want it, one converts and the other waits.

    Raises:
        ModelLoadError: the file cannot be converted, or the folder cannot be written.
    """
    check_magic(path)
    try:
        root = home() / "gguf"
        root.mkdir(parents=True, exist_ok=True)
        folder = root / f"{fingerprint(path, root)[:32]}-v{CONVERTER_VERSION}"
        if not folder.is_dir():
            with FileLock(f"{folder}.lock"):
                if not folder.is_dir():
                    _convert_into(folder, path, progress)
        return folder
    except OSError as error:
        raise ModelLoadError(
            f"{path}: the converted model cannot be kept under {home()}: {error}. Set GENKIT_HOME "
            "to a folder with room that you may write to"
        ) from error


def is_converted(folder: Path) -> bool:
    """Whether a folder was written by this module."""
    return (folder / _ORIGIN).is_file()


def fingerprint(path: Path, root: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    It is computed once for each path, size and time of change: large files take seconds.
    """
    stat = path.stat()
    where = str(path.resolve())
    seen = {"path": where, "size": stat.st_size, "changed": stat.st_mtime_ns}
    name = hashlib.sha256(where.encode()).hexdigest()[:32]
    note = root / "fingerprints" / f"{name}.json"
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        if {key: known[key] for key in seen} == seen:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or not ours: compute it again
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # then it is computed again
        note.parent.mkdir(exist_ok=True)
        _write_whole(note, {**seen, "sha256": digest})
    return digest


def _convert_into(folder: Path, path: Path, progress: Progress) -> None:
    """Convert into a folder beside the final one, and rename it when everything is there."""
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a conversion that was killed
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        write_folder(path, part, progress)
        for made in (part, *part.iterdir()):
            made.chmod(0o755 if made == part else 0o644)  # GENKIT_HOME may be shared
        part.rename(folder)
    except (GenkitError, OSError):
        raise
    except Exception as error:
        raise ModelLoadError(
            f"{path} cannot be converted; it is damaged, or says what cannot be "
            f"({type(error).__name__}: {error})"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)  # there is none if all went well


def write_folder(path: Path, folder: Path, progress: Progress) -> None:
    """Write the model of a GGUF file into an empty folder.

    Weights are stored exactly: floats as they are, quantised ones as float32.
    """
    from genkit.backends.gguf_architectures import architecture_of, config_of, weights_of
    from genkit.backends.gguf_file import GgufFile
    from genkit.backends.gguf_tokenizer import build_tokenizer, end_token_ids

    progress(f"converting {path.name} (once)")
    file = GgufFile(path)
    architecture = architecture_of(file)
    config = config_of(file, architecture)
    tokenizer, settings = build_tokenizer(file)
    progress(f"writing {len(file.shapes)} tensors")
    dtype = _write_weights(weights_of(file, architecture, config), folder)
    ends = {
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": end_token_ids(file) or None,
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
    }
    _write_json(folder / "config.json", {**config, **ends, "torch_dtype": dtype})
    _write_json(folder / "generation_config.json", ends)
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / _ORIGIN, {"converted_from": path.name, "converter": CONVERTER_VERSION})
    tokenizer.save(str(folder / "tokenizer.json"))


def _write_weights(weights: Iterable[tuple[str, torch.Tensor]], folder: Path) -> str:
    """Write safetensors of bounded size; the dtype of the largest weight."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    index: dict[str, str] = {}
    largest = torch.empty(0)
    size = 0
    for name, tensor in weights:
        if size and size + tensor.nbytes > _SHARD_BYTES:
            _write_shard(shards, index, folder)
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
        largest = max(largest, tensor, key=torch.Tensor.numel)
    _write_shard(shards, index, folder)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    return str(largest.dtype).removeprefix("torch.")


def _write_shard(
    shards: list[dict[str, torch.Tensor]], index: dict[str, str], folder: Path
) -> None:
    name = f"model-{len(set(index.values())) + 1:05}.safetensors"
    shard = shards.pop()
    save_file(shard, folder / name, metadata={"format": "pt"})
    index.update(dict.fromkeys(shard, name))
    shards.append({})


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_whole(path: Path, content: dict[str, Any]) -> None:
    """Write a file that others may read or write at the same moment."""
    part = path.with_suffix(f".{os.getpid()}.part")
    _write_json(part, content)
    part.replace(path)
