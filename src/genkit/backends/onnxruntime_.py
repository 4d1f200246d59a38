"""The backend `onnxruntime`: graphs of causal language models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import torch
from pydantic import Field

from genkit.backends.base import Backend, ModelSource, Progress, check_vocabulary
from genkit.backends.sources import locate
from genkit.errors import MissingPackageError, ModelLoadError
from genkit.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from genkit.backends.onnx_model import OnnxModel

__all__ = ["OnnxRuntime"]

_ROUGH = (torch.float16, torch.bfloat16)


class OnnxRuntime(Backend):
    """A graph of a causal language model, run by ONNX Runtime on the CPU or on CUDA."""

    type: Literal["onnxruntime"] = "onnxruntime"

    model: str = Field(
        description="a folder with a graph and its tokenizer, or a file *.onnx",
        examples=["path/to/export"],
    )
    file: str | None = Field(
        None, description="which graph, where the folder has several; relative to the folder"
    )
    provider: str = Field(
        "auto",
        description="auto (CUDA where it works), cpu, cuda, or ONNX Runtime's name of a provider",
    )
    provider_options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="of that provider, by ONNX Runtime's names"
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="on the CPU; by default as many as there are cores"
    )
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        "all", description="how far ONNX Runtime rewrites the graph before it runs it"
    )
    prefill_chunk: int | None = Field(
        512,
        ge=1,
        description="the most prompt tokens of one forward pass, those of all rows together; fewer "
        "take less memory",
    )
    cache_dtype: Literal["float16", "bfloat16"] | None = Field(
        None,
        description="what keys and values are kept in between steps, at a loss; by default the "
        "graph's own type",
    )
    tokenizer: str | None = Field(
        None, description="folder of another tokenizer; by default the model's own"
    )

    @classmethod
    def check_installed(cls) -> None:
        """See `Backend.check_installed`."""
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
        except ImportError as error:
            advice = "pip install 'lm-genkit[onnx]', or [onnx-gpu] for CUDA"
            name = str(error.name)
            raise MissingPackageError(name, advice, "the backend 'onnxruntime'") from None

    def load(
        self,
        *,
        models: Mapping[str, ModelSource] | None = None,
        progress: Progress | None = None,
    ) -> OnnxModel:
        """Load graph and tokenizer; see `Backend.load`."""
        self.check_installed()
        from genkit.backends.onnx_facts import Settings
        from genkit.backends.onnx_file import find_graph, look_into
        from genkit.backends.onnx_graph import read_graph
        from genkit.backends.onnx_model import OnnxModel
        from genkit.backends.onnx_session import open_session
        from genkit.backends.onnx_trial import Trial

        spec, folder = self._found(models or {})
        path = find_graph(folder, spec.file)
        file = look_into(path)
        tokenizer = spec._tokenizer(path.parent)
        session = open_session(
            path,
            provider=spec.provider,
            provider_options=spec.provider_options,
            threads=spec.threads,
            optimization=spec.optimization,
        )
        graph = read_graph(path, session.get_inputs(), session.get_outputs())
        settings = Settings(path.parent)
        model = OnnxModel(
            session,
            graph,
            file,
            settings,
            tokenizer,
            spec.model,
            prefill_chunk=spec.prefill_chunk,
            cache_dtype=None if spec.cache_dtype is None else getattr(torch, spec.cache_dtype),
        )
        check_vocabulary(tokenizer, model.vocab_size)
        is_rough = model.rounds or graph.dtype in _ROUGH
        model.supports = Trial(model, str(path), is_rough=is_rough).supports()
        return model

    def _tokenizer(self, folder: Path) -> Tokenizer | None:
        """The tokenizer that was asked for, or that of the graph's folder or the one around it."""
        from genkit.backends.loading import has_tokenizer, load_tokenizer

        if self.tokenizer is not None:
            return load_tokenizer(Path(self.tokenizer).expanduser())
        found = [each for each in (folder, folder.parent) if has_tokenizer(each)]
        return load_tokenizer(found[0]) if found else None

    def _found(self, models: Mapping[str, ModelSource]) -> tuple[Self, Path]:
        """This spec with the options of a registered name, and where its model is."""
        path = Path(self.model).expanduser()
        if path.suffix == ".onnx" and path.is_file():
            return self, path
        place = locate(self.model, models)
        if place.kind != "folder":
            raise ModelLoadError(
                f"{self.model!r} is no folder with an ONNX graph; `genkit export {self.model} OUT` "
                "makes one"
            )
        return self.with_options(place.options), Path(place.where)
