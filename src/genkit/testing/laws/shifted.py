"""Another model out of a given one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from genkit.core.contracts import Cache


class Shifted:
    """A model that reads each id as another one; with another offset it is another model.

    Args:
        model: the model that it is made of.
        offset: what is added to each id, round the end of the vocabulary. Setting the attribute is
            what writing to the weights is for other models.
    """

    def __init__(self, model: Any, offset: int = 0) -> None:
        self._model = model
        self._first = offset
        self.offset = offset

    def __getattr__(self, attribute: str) -> Any:
        """Everything else is the model's own."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self._model, attribute)

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """What the model gives for the other ids."""
        logits: torch.Tensor = self._model(self._shift(input_ids), cache)
        return logits

    @property
    def last(self) -> Callable[[torch.Tensor, Cache, int], torch.Tensor]:
        """The model's `last` for the other ids, if it has one."""
        last = self._model.last
        return lambda input_ids, cache, n: last(self._shift(input_ids), cache, n)

    @property
    def fingerprint(self) -> Callable[[], str]:
        """The model's `fingerprint`, if it has one, with the offset."""
        fingerprint = self._model.fingerprint
        return lambda: f"{fingerprint()}-{self.offset}"

    @property
    def weights_version(self) -> tuple[object, int]:
        """Another value for another offset; two models may well have the same."""
        return getattr(self._model, "weights_version", 0), self.offset - self._first

    def _shift(self, ids: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = (ids + self.offset) % self._model.vocab_size
        return shifted
