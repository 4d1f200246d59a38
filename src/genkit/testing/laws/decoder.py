"""The laws of decoders: what every loop over the contracts keeps, whatever it chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
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
from genkit.core.result import Steps
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.decoders.autoregressive import Autoregressive
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import Comparison
from genkit.testing.laws.faults import Fault
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Law
from genkit.testing.laws.trace import trace_run
from genkit.testing.laws.variant import variant_of


def plain_steps(pipeline: Pipeline, case: Case) -> Finding:
    """The tokens of the plain loop."""
    plain = variant_of(pipeline, decoder=Autoregressive())
    mine, its = (
        trace_run(each, case.prompts, case.seeds, case.num_tokens) for each in (pipeline, plain)
    )
    return Comparison.of(pipeline).rows(mine, its, "this decoder and the plain loop")


def rows_end_once(pipeline: Pipeline, case: Case) -> Finding:
    """Every row has steps until one that ends it, and none after that."""
    going = set(range(len(case.prompts)))
    found = Finding(cases=1)
    for number, step in enumerate(_steps(pipeline, case)):
        rows = step.rows.tolist()
        found += Finding(decisions=1)
        if len(set(rows)) < len(rows) or not going.issuperset(rows):
            words = f"step {number} has the rows {rows}; unfinished are {sorted(going)}"
            return found + Finding(mismatches=1, detail=words)
        going -= {row for row, _, stop in step if stop is not None}
    if going:
        words = f"the rows {sorted(going)} have not ended when the decoder does"
        found += Finding(mismatches=1, detail=words)
    return found


def caches_are_released(pipeline: Pipeline, case: Case) -> Finding:
    """Each cache acquired is released once: at the end, when left early, when a part raises."""
    found = Finding(cases=1)
    for failing in ("nothing", "the model", "a processor"):
        for call in (1, 2):
            found += _account(pipeline, case, failing, call)
    return found


def _account(pipeline: Pipeline, case: Case, failing: str, call: int) -> Finding:
    """Run once; what fails does so at its call number `call`, and for nothing the run is left."""
    audited = _Audited(pipeline.parts.decoder, failing, call)
    steps = _steps(variant_of(pipeline, decoder=audited), case)
    with suppress(Fault), closing(steps):
        for number, _ in enumerate(steps, 1):
            if failing == "nothing" and number == call:
                break
    found = Finding(decisions=1)
    given, back = len(audited.acquired), len(audited.released)
    if list(map(id, audited.acquired)) != list(map(id, audited.released)):
        when = f"{failing} fails at call {call}" if failing != "nothing" else "the run is left"
        words = f"{given} caches acquired and {back} released, or not the same, when {when}"
        found += Finding(mismatches=1, detail=words)
    return found


SAME_AS_THE_PLAIN_LOOP = Law(
    "same as the plain loop", "the tokens are those of the plain loop", plain_steps
)

DECODER_LAWS: tuple[Law, ...] = (
    Law("rows end once", "every row has steps until one that ends it", rows_end_once),
    Law(
        "caches are released",
        "each cache acquired is released once, whatever ends the run",
        caches_are_released,
    ),
)
"""The laws of every decoder."""


class _Audited:
    """A decoder whose manager is watched, and of whose parts one may fail."""

    def __init__(self, decoder: Any, failing: str, call: int) -> None:
        self.decoder = decoder
        self.failing = failing
        self.call = call
        self.acquired: list[Cache] = []
        self.released: list[Cache] = []

    def bind(self, run: Run) -> _Audited:
        if hasattr(self.decoder, "bind"):
            self.decoder = self.decoder.bind(run)
        return self

    def __call__(
        self,
        model: Any,
        manager: CacheManager,
        processors: Sequence[LogitsProcessor],
        sampler: Sampler,
        stop_criteria: Sequence[StopCriterion],
        state: GenerationState,
    ) -> Steps:
        if self.failing == "the model":
            model = _FailingModel(model, self._count)
        if self.failing == "a processor":
            processors = [*processors, self._process]
        loop: Steps = self.decoder(
            model, _Noting(manager, self), processors, sampler, stop_criteria, state
        )
        return loop

    def _process(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self._count()
        return logits

    def _count(self) -> None:
        self.call -= 1
        if self.call == 0:
            raise Fault


class _Noting:
    """A manager that notes which caches it hands out and gets back."""

    def __init__(self, manager: CacheManager, audited: _Audited) -> None:
        self._manager = manager
        self._audited = audited

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        cache = self._manager.acquire(model, state)
        self._audited.acquired.append(cache)
        return cache

    def release(self, cache: Cache, state: GenerationState) -> None:
        self._audited.released.append(cache)
        self._manager.release(cache, state)


class _FailingModel:
    def __init__(self, model: Any, count: Callable[[], None]) -> None:
        self._model = model
        self._count = count

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._model, attribute)

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        self._count()
        logits: torch.Tensor = self._model(input_ids, cache)
        return logits


def _steps(pipeline: Pipeline, case: Case) -> Steps:
    prompts = [list(prompt) for prompt in case.prompts]
    return pipeline.decode(prompts, seeds=list(case.seeds), max_new_tokens=case.num_tokens)
