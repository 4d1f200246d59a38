"""The backend `pytorch`: causal language models of transformers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field, field_validator

from genkit.backends.base import Backend, ModelSource, Progress, check_vocabulary
from genkit.backends.sources import Place, locate
from genkit.errors import ModelLoadError, UnknownNameError
from genkit.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from genkit.backends.pytorch_model import PyTorchModel

__all__ = ["PyTorch"]


class PyTorch(Backend):
    """A causal language model of transformers, run by PyTorch on the CPU or on CUDA."""

    type: Literal["pytorch"] = "pytorch"

    model: str = Field(
        description="a registered name, a local folder, a .gguf file or a hub id",
        examples=["smollm2"],
    )
    dtype: Literal["float32", "float64", "bfloat16", "float16", "auto"] = Field(
        "float32", description="what weights are computed in; auto: as they are stored"
    )
    device: str = Field("auto", description="auto (CUDA where there is one), cpu, cuda or cuda:N")
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = Field(
        None, description="how attention is computed; by default what transformers prefers"
    )
    prefill_chunk: int | None = Field(
        None,
        ge=1,
        description="the most prompt tokens of one forward pass; fewer take less memory",
    )
    compile: bool = Field(
        False,
        description="compile the decode step, once a buffer size; goes with the cache `static`",
    )
    revision: str | None = Field(None, description="branch, tag or commit of a hub model")
    tokenizer: str | None = Field(
        None, description="folder or hub id of another tokenizer; by default the model's own"
    )
    trust_remote_code: bool = Field(False, description="run Python code that the model brings")
    allow_pickle: bool = Field(
        False,
        description="load pickled weights where there are no safetensors; pickles can run code",
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError("device is one of auto, cpu, cuda, cuda:N")
        return device

    @property
    def cache_must_use(self) -> frozenset[str]:
        """What a cache manager must require; known before the model is loaded."""
        return frozenset({"static"} if self.compile else ())

    def load(
        self,
        *,
        models: Mapping[str, ModelSource] | None = None,
        progress: Progress | None = None,
    ) -> PyTorchModel:
        """Load model and tokenizer; see `Backend.load`.

        A GGUF file is converted once, into a folder under `GENKIT_HOME`. Nothing that the model
        brings runs as code, and only safetensors are read, unless the options say otherwise.
        """
        place = locate(self.model, models or {})
        spec = self.with_options(place.options)
        device = choose_device(spec.device)  # before anything is read
        from genkit.backends.loading import load_model, load_tokenizer, read_config

        report = progress or _silent
        folder = spec._folder(place, report)
        with _told_of(place, folder):
            config = read_config(folder, spec)
            # Weights last: they are what takes long, and a tokenizer can be wrong too.
            tokenizer = load_tokenizer(
                spec._tokenizer_folder(folder, report), trust_remote_code=spec.trust_remote_code
            )
            module = load_model(folder, config, spec, device)
            return _assemble(
                module,
                tokenizer,
                self.model,
                prefill_chunk=spec.prefill_chunk,
                compiler="inductor" if spec.compile else None,
            )

    def folder(
        self,
        *,
        models: Mapping[str, ModelSource] | None = None,
        progress: Progress | None = None,
    ) -> Path:
        """Where the files are that `load` reads; fetches or converts them if nobody has yet.

        Raises:
            ModelLoadError, UnknownNameError: as `Backend.load`.
        """
        place = locate(self.model, models or {})
        return self.with_options(place.options)._folder(place, progress or _silent)

    @staticmethod
    def wrap(
        model: Any,
        tokenizer: Any = None,
        *,
        prefill_chunk: int | None = None,
        compile: bool = False,
    ) -> PyTorchModel:
        """A transformers model that is in memory already.

        Args:
            model: a causal language model. It is put into evaluation mode and otherwise left alone.
            tokenizer: its tokenizer, of transformers or of genkit; without one prompts are ids.
            prefill_chunk, compile: the options of the same names.

        Raises:
            ModelLoadError: it is no causal language model, or the tokenizer does not fit.
        """
        if not isinstance(tokenizer, Tokenizer | None):
            from genkit.text.huggingface import HuggingFaceTokenizer

            tokenizer = HuggingFaceTokenizer(tokenizer)
        name = getattr(model, "name_or_path", "")
        compiler = "inductor" if compile else None
        return _assemble(
            model.eval(), tokenizer, name, prefill_chunk=prefill_chunk, compiler=compiler
        )

    def _folder(self, place: Place, progress: Progress) -> Path:
        if self.revision is not None and place.kind != "hub":
            raise ModelLoadError(f"revision: {place.where} is on this machine and has none")
        if place.kind == "gguf":
            from genkit.backends.gguf import converted

            return converted(Path(place.where), progress)
        if place.kind == "hub":
            return self._fetch(place.where, self.revision, progress)
        return Path(place.where)

    def _tokenizer_folder(self, model_folder: Path, progress: Progress) -> Path:
        if self.tokenizer is None:
            return model_folder
        try:
            place = locate(self.tokenizer, {})
        except UnknownNameError:
            raise ModelLoadError(
                f"tokenizer: {self.tokenizer!r} is neither a folder nor a hub id (owner/name)"
            ) from None
        if place.kind == "gguf":
            raise ModelLoadError(f"tokenizer: {place.where} is a file; give a folder or a hub id")
        if place.kind == "hub":
            return self._fetch(place.where, None, progress)  # `revision` is the model's
        return Path(place.where)

    def _fetch(self, hub_id: str, revision: str | None, progress: Progress) -> Path:
        from genkit.backends.hub import fetch

        return fetch(
            hub_id,
            revision,
            pickle=self.allow_pickle,
            code=self.trust_remote_code,
            progress=progress,
        )


@contextlib.contextmanager
def _told_of(place: Place, folder: Path) -> Iterator[None]:
    """Name the GGUF file in errors about the folder that it was converted into."""
    try:
        yield
    except ModelLoadError as error:
        if place.kind != "gguf":
            raise
        raise ModelLoadError(
            f"{place.where}: {error} (if the converted folder {folder} is damaged, delete it: it "
            "is made anew)"
        ) from error


def choose_device(device: str) -> torch.device:
    """The device that an option names.

    Raises:
        ModelLoadError: CUDA is asked for and not there; the message says why.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (chosen.index or 0) >= count:
            raise ModelLoadError(f"device {device!r}: {_why_no_cuda(count)}; use `device: cpu`")
    return chosen


def _why_no_cuda(count: int) -> str:
    if torch.version.cuda is None:
        return f"the installed PyTorch ({torch.__version__}) is built without CUDA"
    if count == 0:
        return "PyTorch finds no CUDA device (no GPU, or no driver for it)"
    return f"there are {count} CUDA devices, numbered from 0"


def _assemble(module: Any, tokenizer: Tokenizer | None, name: str, **options: Any) -> PyTorchModel:
    from genkit.backends.model_facts import facts_of
    from genkit.backends.pytorch_model import PyTorchModel

    facts = facts_of(module, tokenizer)
    check_vocabulary(tokenizer, facts.vocab_size)
    return PyTorchModel(module, facts, tokenizer, name, **options)


def _silent(message: str) -> None:
    """Nobody wants to know."""
