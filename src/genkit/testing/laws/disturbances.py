"""Decoders that make detours on the way to the tokens of the plain loop."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import torch

from genkit.core.contracts import (
    Cache,
    CacheManager,
    LogitsProcessor,
    Model,
    Sampler,
    StopCriterion,
)
from genkit.core.loop import autoregressive, keep_rows
from genkit.core.result import Step, Steps
from genkit.core.state import GenerationState
from genkit.testing.laws.trace import Trace, add_step

Feed = Callable[[torch.Tensor, Any], torch.Tensor]
"""What a model is called with, and what it gives."""


class Detour:
    """The plain loop, with a place for each thing that a subclass does in another way.

    Args:
        choices: where the subclass takes its decisions from.
    """

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices

    def __call__(
        self,
        model: Model,
        manager: CacheManager,
        processors: Sequence[LogitsProcessor],
        sampler: Sampler,
        stop_criteria: Sequence[StopCriterion],
        state: GenerationState,
    ) -> Steps:
        """The steps of the plain loop."""
        lent = _Lent(manager, model, self)
        fed = _Fed(model, lambda ids, cache: self.feed(model, ids, cache, state))
        loop = autoregressive(fed, lent, processors, sampler, stop_criteria, state)
        with closing(loop) as steps:
            for step in steps:
                yield step
                self.after(step, state, [lent.cache, *processors, sampler, *stop_criteria])

    def acquired(
        self, cache: Any, manager: CacheManager, model: Model, state: GenerationState
    ) -> Cache:
        """The cache to run with, when the manager has handed one out."""
        given: Cache = cache
        return given

    def feed(
        self, model: Model, ids: torch.Tensor, cache: Any, state: GenerationState
    ) -> torch.Tensor:
        """The logits that the model is asked for."""
        return model(ids, cache)

    def after(self, step: Step, state: GenerationState, holders: Sequence[Any]) -> None:
        """Called between two steps; `holders` are the cache and the parts, which hold rows."""


class InPieces(Detour):
    """Feeds what the cache does not hold in several pieces.

    A model without `block` gets one piece and then single tokens.
    """

    def feed(
        self, model: Model, ids: torch.Tensor, cache: Any, state: GenerationState
    ) -> torch.Tensor:
        """The logits after the last piece."""
        for piece in ids.split(self._sizes(ids.shape[1], "block" in cache.supports), dim=1):
            logits = model(piece, cache)
        return logits

    def _sizes(self, count: int, block: bool) -> list[int]:
        if not block:
            first = self.choices.randint(1, count)
            return [first] + [1] * (count - first)
        longest = self.choices.choice((1, 2, 4, count))
        sizes: list[int] = []
        while count:
            sizes.append(min(count, self.choices.randint(1, longest)))
            count -= sizes[-1]
        return sizes


class GoingBack(Detour):
    """Feeds tokens that do not belong to the text, crops, and feeds the right ones again."""

    def feed(
        self, model: Model, ids: torch.Tensor, cache: Any, state: GenerationState
    ) -> torch.Tensor:
        """The logits after what the state holds."""
        held = cache.length
        room = min(3, state.nearest_end - held)
        shape = (len(ids), self.choices.randint(1, room))
        wrong = [self.choices.randrange(model.vocab_size) for _ in range(shape[0] * shape[1])]
        model(torch.tensor(wrong, device=ids.device).view(shape), cache)
        cache.crop(held if self.choices.random() < 0.5 else self.choices.randint(0, held))
        return model(state.since(cache.length), cache)


class Rearranged(Exception):
    """A run is over whose rows are not those it began with, so that it has no results."""


class Shuffling(Detour):
    """Drops, repeats and permutes rows between steps, and gives traces in place of steps.

    Args:
        choices: decide which rows.
        traces: of the rows at the beginning.

    Attributes:
        all_traces: one for each row there has been; a repeated row begins with what its original
            had done until then.
    """

    def __init__(self, choices: random.Random, traces: Sequence[Trace]) -> None:
        super().__init__(choices)
        self.all_traces = list(traces)
        self._present = list(traces)

    def __call__(self, *parts: Any) -> Steps:
        """Run to the end.

        Raises:
            Rearranged: always, then; the pipeline's `PartError` has it as its cause.
        """
        for _ in super().__call__(*parts):
            pass
        raise Rearranged

    def after(self, step: Step, state: GenerationState, holders: Sequence[Any]) -> None:
        """Rearrange, unless rows end with this step: the loop is about to let them leave."""
        add_step(step, self._present)
        if any(step.stops):
            self._present = [
                t for t, stop in zip(self._present, step.stops, strict=True) if not stop
            ]
            return
        count = len(state)
        kept = self.choices.choices(range(count), k=self.choices.randint(1, count + 1))
        if self.choices.random() < 0.5:
            kept = self.choices.sample(range(count), count)
        keep_rows(kept, state, *holders)
        self._rearrange(kept)

    def _rearrange(self, kept: Sequence[int]) -> None:
        present: list[Trace] = []
        for place, i in enumerate(kept):
            trace = self._present[i]
            if i in kept[:place]:
                # What the original has done meanwhile is the same up to now.
                trace = trace.first(len(trace.ids))
                self.all_traces.append(trace)
            present.append(trace)
        self._present = present


class Spoiling(Detour):
    """Takes a cache, overwrites what it holds, gives it back empty, and runs with another one."""

    def acquired(
        self, cache: Any, manager: CacheManager, model: Model, state: GenerationState
    ) -> Cache:
        """A second cache for the same prompts."""
        for keys, values in cache.layers:
            keys.fill_(3)
            values.fill_(3)
        cache.crop(0)
        manager.release(cache, state)
        return manager.acquire(model, state)


class Watching(Detour):
    """Counts how often what a cache holds for a column changes after it was put there.

    Attributes:
        changes: for each layer, how often each column changed, int64 `[columns]`. Watching ends
            when something is left out of the cache.
    """

    def __init__(self, choices: random.Random) -> None:
        super().__init__(choices)
        self.changes: list[torch.Tensor] = []
        self._held: list[torch.Tensor] = []

    def after(self, step: Step, state: GenerationState, holders: Sequence[Any]) -> None:
        """Compare with what was held one step before."""
        cache = holders[0]
        layers = [torch.cat(layer, -1) for layer in cache.layers]  # a copy
        if any(layer.shape[2] != cache.length for layer in layers):
            return
        for i, layer in enumerate(layers):
            if i == len(self.changes):
                self.changes.append(torch.zeros(layer.shape[2], dtype=torch.int64))
            else:
                self._compare(i, layer)
        self._held = layers

    def _compare(self, i: int, layer: torch.Tensor) -> None:
        old = self._held[i]
        differs = (layer[:, :, : old.shape[2]] != old).any(-1).any(1).any(0).cpu()
        new = layer.shape[2] - old.shape[2]
        self.changes[i] = torch.nn.functional.pad(self.changes[i] + differs, (0, new))


class _Lent:
    """A manager that leaves the cache of the run in sight, and knows the real model."""

    def __init__(self, manager: CacheManager, model: Model, detour: Detour) -> None:
        self._manager = manager
        self._model = model
        self._detour = detour
        self.cache: Any = None

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        cache = self._manager.acquire(self._model, state)
        self.cache = self._detour.acquired(cache, self._manager, self._model, state)
        return self.cache  # type: ignore[no-any-return]

    def release(self, cache: Cache, state: GenerationState) -> None:
        self._manager.release(cache, state)


class _Fed:
    """A model that is fed in another way."""

    def __init__(self, model: Model, feed: Feed) -> None:
        self._model = model
        self._feed = feed

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._model, attribute)

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        return self._feed(input_ids, cache)
