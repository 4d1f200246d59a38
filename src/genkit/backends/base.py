"""The base of all backends, and what a registered model name stands for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from genkit.components.base import Component
from genkit.core import contracts
from genkit.errors import ModelLoadError
from genkit.text.tokenizer import Tokenizer

Where = str | os.PathLike[str]

ModelSource = Where | Mapping[str, Any] | Callable[[], Where]
"""Where a registered model is: a folder, GGUF file or hub id; a callable that finds one of these
when the model is loaded; or options of the backend, of which `model` is one of these."""

Progress = Callable[[str], Any]
"""Called with one line for a person whenever a long piece of work begins."""


class Backend(Component):
    """Base of whatever yields a model.

    One whose model has `cache_must_use` (see `genkit.core.contracts.Model`) may have it too: then a
    recipe with another cache is refused before anything is loaded.
    """

    kind: ClassVar[str] = "backend"

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """This spec, with the options of a registered name where none was given."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**options, **given}) if options else self

    @classmethod
    def check_installed(cls) -> None:
        """Refuse to go on where a package is not there that this backend runs on.

        Raises:
            MissingPackageError: one is missing; the message says what brings it.
        """

    def load(
        self,
        *,
        models: Mapping[str, ModelSource] | None = None,
        progress: Progress | None = None,
    ) -> contracts.Model:
        """Load the model, ready to be called.

        Args:
            models: the registered names, and where each of them is.
            progress: told what takes long.

        Raises:
            ModelLoadError: the model cannot be loaded; the message says why and what to do.
            UnknownNameError: `model` is neither a place nor a registered name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define load")


def check_vocabulary(tokenizer: Tokenizer | None, vocab_size: int) -> None:
    """Refuse a tokenizer with ids that a model has no logits for.

    Raises:
        ModelLoadError: it has some.
    """
    if tokenizer is not None and tokenizer.vocab_size > vocab_size:
        raise ModelLoadError(
            f"the tokenizer has {tokenizer.vocab_size} ids and the model gives logits for "
            f"{vocab_size} only: they do not belong together"
        )
