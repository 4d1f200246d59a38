"""Parts made ready for the rows that are decoded together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from genkit.core import contracts
from genkit.core.guard import (
    GuardedManager,
    GuardedProcessor,
    GuardedSampler,
    GuardedStopCriterion,
)
from genkit.core.guarded_decoder import GuardedDecoder
from genkit.core.random import RowRandom
from genkit.core.result import Steps
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import FAILURES, GenkitError, PartError, UnsupportedError


@dataclass(frozen=True)
class Parts:
    """The parts of a pipeline as they were given: components, or plain callables."""

    decoder: Any
    cache: Any
    processors: Sequence[Any]
    sampler: Any
    stop_criteria: Sequence[Any]

    def bind(self, run: Run) -> BoundParts:
        """The parts for the rows of `run`.

        Raises:
            GenkitError: whatever a part refuses, before the first token.
        """
        bind = _Binder(run)
        return BoundParts(
            run=run,
            decoder=GuardedDecoder(
                bind(self.decoder, "decoder"), contracts.place_of("decoder", self.decoder)
            ),
            manager=GuardedManager(
                bind(self.cache, "cache"), contracts.place_of("cache", self.cache)
            ),
            processors=[
                GuardedProcessor(bound, label)
                for bound, label, _ in bind.all(self.processors, "processors")
            ],
            sampler=GuardedSampler(
                bind(self.sampler, "sampler"), contracts.place_of("sampler", self.sampler)
            ),
            stop_criteria=[
                *(
                    GuardedStopCriterion(*each)
                    for each in bind.all(self.stop_criteria, "stop_criteria")
                ),
                RowFull(),
            ],
        )


@dataclass(frozen=True)
class BoundParts:
    """The callables of one run."""

    run: Run
    decoder: contracts.Decoder
    manager: contracts.CacheManager
    processors: Sequence[contracts.LogitsProcessor]
    sampler: contracts.Sampler
    stop_criteria: Sequence[contracts.StopCriterion]

    @property
    def held_back(self) -> list[Callable[[str], int]]:
        """What the criteria say about letters that a stream must not show yet."""
        counts = (getattr(criterion, "held_back", None) for criterion in self.stop_criteria)
        return [count for count in counts if count is not None]

    def steps(self, model: contracts.Model) -> Steps:
        """Run the loop."""
        run = self.run
        run.clock.start()
        rng = RowRandom(run.seeds, run.samples, run.device)
        state = GenerationState(run.prompts, run.limits, rng, run.rows, run.device)
        return self.decoder(
            model, self.manager, self.processors, self.sampler, self.stop_criteria, state
        )


class RowFull:
    """Ends a row at its limit, whatever is listed; it is the last criterion to be asked."""

    name = "context_length"
    finish_reason = "length"

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True where the row can take no more, bool `[batch]`."""
        if state.length < state.nearest_end:
            return state.finished
        return state.ends <= state.length


class _Binder:
    """Binds one part after the other and numbers those of the same type."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ordinals: Counter[str] = Counter()

    def __call__(self, part: Any, key: str) -> Any:
        """The callable of a part; a plain callable is its own."""
        bound = self._bind(part, key)
        if bound is None:
            raise UnsupportedError(
                f"{contracts.place_of(key, part)} does nothing in this run; it is needed"
            )
        return bound

    def _bind(self, part: Any, key: str) -> Any:
        if getattr(part, "bind", None) is None:
            return part
        name = contracts.name_of(part)
        try:
            bound = part.bind(self.run.for_part(f"{name}:{self.ordinals[name]}"))
        except GenkitError:
            raise
        except FAILURES as error:
            what = f"{type(error).__name__}: {error}"
            raise PartError(
                f"{contracts.place_of(key, part)} raised {what} when it was bound"
            ) from error
        self.ordinals[name] += 1
        if bound is not part and bound is not None:
            self._check_reorder(bound, contracts.place_of(key, part))
        return bound

    def all(self, parts: Sequence[Any], key: str) -> Iterator[tuple[Any, str, Any]]:
        """The callables of the parts that do something in this run, and how errors call them.

        The part itself comes last.
        """
        for i, part in enumerate(parts):
            bound = self._bind(part, f"{key}.{i}")
            if bound is not None:
                yield bound, contracts.place_of(f"{key}.{i}", part), part

    def _check_reorder(self, bound: Any, label: str) -> None:
        if len(self.run) > 1 and not hasattr(bound, "reorder"):
            raise UnsupportedError(
                f"{label} makes a new object for each run, and that has no `reorder(indices)`, so "
                "it cannot follow the rows of a batch; give it one, or pass one prompt at a time"
            )
