"""Finds out, on a few tokens, what a graph really does.

The form of a graph promises more than some exports keep: sizes may be baked in, positions may not
follow the mask, and an encoder looks like a language model. Each claim is tried once, before the
first token of anybody's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.core.contracts import Model
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import ModelLoadError

_LENGTH = 5


class Trial:
    """One model, tried.

    Args:
        model: its `supports` is what it claims.
        name: how errors call it.
        is_rough: whether it computes with so few bits that more than rounding must differ before
            it counts.

    Raises:
        ModelLoadError: it cannot be run at all, gives NaN, continues no text, or forgets its past.
    """

    def __init__(self, model: Model, name: str, *, is_rough: bool) -> None:
        self._model = model
        self._name = name
        self._share = 0.5 if is_rough else 0.02  # of the spread of the logits
        self._ids = [(7919 * (i + 1)) % model.vocab_size for i in range(_LENGTH)]
        self._whole = self._logits([self._ids])
        if bool(self._whole.isnan().any()):
            raise ModelLoadError(
                f"{name} gives NaN where logits are due; a graph in float16 that overflows is the "
                "usual cause: export it in float32"
            )

    def supports(self) -> frozenset[str]:
        """What is left of the model's claims."""
        self._refuse_what_sees_ahead()
        self._refuse_what_forgets()
        claims = set(self._model.supports)
        if not self._agrees(lambda: self._logits([self._ids], [2]), self._whole):
            claims.discard("block")
        two = torch.cat((self._whole, self._whole))
        if not self._agrees(lambda: self._logits([self._ids, self._ids], [4]), two):
            claims -= {"reorder", "ragged"}
        elif "ragged" in claims:
            short = self._logits([self._ids[2:]])
            both = torch.cat((self._whole, short))
            agree = self._agrees(lambda: self._logits([self._ids, self._ids[2:]], [4]), both)
            if not (agree and self._keys_know_no_padding()):
                claims -= {"ragged", "positions"}
        return frozenset(claims)

    def _refuse_what_sees_ahead(self) -> None:
        other = [*self._ids[:-1], (self._ids[-1] + 1) % self._model.vocab_size]
        try:
            one, two = self._last_two(self._ids), self._last_two(other)
        except Exception:  # it gives logits of the last position only
            return
        if not self._near(one[:, 0], two[:, 0]):
            raise ModelLoadError(
                f"{self._name} sees the token after a position, as an encoder does; it continues "
                "no text"
            )

    def _refuse_what_forgets(self) -> None:
        if not self._near(self._logits([self._ids], [4]), self._whole):
            raise ModelLoadError(
                f"{self._name} gives other logits with its past than at once; the export is broken"
            )

    def _keys_know_no_padding(self) -> bool:
        """Whether keys of a padded row are those of the row alone.

        Those that were turned by their column are of use in that column only, and could not be
        given to a row with other padding. Logits do not show it: they go by distances.
        """
        if "layers" not in self._model.supports:
            return True
        short = self._ids[2:]
        alone, padded = self._keys([short]), self._keys([self._ids, short])
        return all(
            self._near(given[-1:, :, -len(short) :], expected)
            for given, expected in zip(padded, alone, strict=True)
        )

    def _keys(self, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        state = self._state(prompts)
        cache: Any = self._model.new_cache(state)
        self._model(state.token_ids, cache)
        return [keys for keys, _ in cache.layers]

    def _last_two(self, ids: Sequence[int]) -> torch.Tensor:
        state = self._state([ids])
        model: Any = self._model
        logits: torch.Tensor = model.last(state.token_ids, model.new_cache(state), 2)
        return logits

    def _logits(self, prompts: Sequence[Sequence[int]], cuts: Sequence[int] = ()) -> torch.Tensor:
        """The logits after the last token, with the columns fed in pieces."""
        state = self._state(prompts)
        cache = self._model.new_cache(state)
        try:
            for cut in cuts:
                self._model(state.token_ids[:, cache.length : cut], cache)
            return self._model(state.token_ids[:, cache.length :], cache)
        except ModelLoadError:
            raise
        except Exception as error:
            words = " ".join(str(error).split())
            raise ModelLoadError(f"{self._name} does not run: {words}") from error

    def _state(self, prompts: Sequence[Sequence[int]]) -> GenerationState:
        rng = RowRandom([0] * len(prompts), [0] * len(prompts), self._model.device)
        limits = [len(prompt) for prompt in prompts]
        return GenerationState(prompts, limits, rng, device=self._model.device)

    def _agrees(self, compute: Any, expected: torch.Tensor) -> bool:
        try:
            return self._near(compute(), expected)
        except ModelLoadError:
            return False

    def _near(self, given: torch.Tensor, expected: torch.Tensor) -> bool:
        """Whether two results are the same up to rounding; ids that are masked are so in both."""
        spread = float(expected[expected.isfinite()].std().nan_to_num()) or 1.0
        difference = (given - expected).abs().masked_fill(given == expected, 0)
        return bool(difference.max() <= self._share * spread)
