"""Watches that a decoder's steps fit its run.

The loop that comes with genkit needs no watching. What other loops yield is believed by
transcripts, observers and streams alike, so it is looked at once, here.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import GeneratorType
from typing import Any

import torch

from genkit.core import guard
from genkit.core.contracts import (
    CacheManager,
    Decoder,
    LogitsProcessor,
    Model,
    Sampler,
    StopCriterion,
)
from genkit.core.failure import modules_of
from genkit.core.loop import autoregressive
from genkit.core.result import Step, Steps, Stop
from genkit.core.state import GenerationState
from genkit.errors import FAILURES, GenkitError, PartError

_NO_MORE: Any = object()


class GuardedDecoder:
    """A decoder that gives ids of the model, to rows that have not ended, until each has."""

    def __init__(self, part: Decoder, label: str) -> None:
        self.part = part
        self.label = label

    def __call__(
        self,
        model: Model,
        manager: CacheManager,
        processors: Sequence[LogitsProcessor],
        sampler: Sampler,
        stop_criteria: Sequence[StopCriterion],
        state: GenerationState,
    ) -> Steps:
        """The decoder's steps.

        Raises:
            PartError: it raised, or gave no steps; the steps raise it where one does not fit.
        """
        rows = set(state.rows.tolist())
        with self._blamed(0):
            steps = self.part(model, manager, processors, sampler, stop_criteria, state)
        if not isinstance(steps, GeneratorType):
            raise self._broken(0, f"gave {type(steps).__name__}, not a generator of steps")
        if inspect.getgeneratorstate(steps) != inspect.GEN_CREATED:
            raise self._broken(0, "gave a generator of which steps are gone already")
        return steps if _is_plain(steps, state) else self._watched(steps, rows, model.vocab_size)

    def _watched(self, steps: Steps, unfinished: set[int], vocab_size: int) -> Steps:
        index = 0
        try:
            while True:
                with self._blamed(index):
                    step = next(steps, _NO_MORE)
                if step is _NO_MORE:
                    break
                for wrong in _wrong_with(step, unfinished, vocab_size):
                    raise self._broken(index, f"gave {wrong}")
                ends = zip(step.rows.tolist(), step.stops, strict=True)
                unfinished -= {row for row, stop in ends if stop is not None}
                yield step
                index += 1
        finally:
            with self._blamed(index):
                steps.close()
        if unfinished:
            rows = ", ".join(map(str, sorted(unfinished)))
            raise self._broken(index, f"gave no more steps, but nothing has ended the rows {rows}")

    @contextmanager
    def _blamed(self, index: int) -> Iterator[None]:
        """What the decoder raises names it; what the model raises in the middle of it does not."""
        try:
            yield
        except GenkitError:
            raise
        except FAILURES as error:
            if guard.__name__ in modules_of(error):
                raise
            raise self._broken(index, f"raised {type(error).__name__}: {error}") from error

    def _broken(self, index: int, what: str) -> PartError:
        return PartError(f"step {index}: {self.label} {what}")


def _is_plain(steps: Any, state: GenerationState) -> bool:
    """Whether these are the steps of the plain loop over a state."""
    return (
        steps.gi_code is autoregressive.__code__
        and inspect.getgeneratorlocals(steps)["state"] is state
    )


def _wrong_with(step: Any, unfinished: set[int], vocab_size: int) -> Iterator[str]:
    """What a decoder has given, where it is no step of these rows; the first of it is enough."""
    if not isinstance(step, Step):
        yield f"{_short(step)}, not a Step"
        return
    stops: Any = step.stops
    if not isinstance(stops, tuple) or not all(isinstance(stop, Stop | None) for stop in stops):
        yield f"a step with the stops {_short(stops)}, not a tuple of Stop or None"
        return
    size = len(stops)
    for name in ("rows", "next_ids"):
        ids = getattr(step, name)
        if not _is(ids, size) or ids.dtype != torch.int64 or ids.device.type != "cpu":
            yield f"a step with the {name} {_short(ids)}, not int64 [{size}] on the host"
            return
    for name in ("raw_logits", "logits"):
        if not _is(getattr(step, name), size, vocab_size):
            found = _short(getattr(step, name))
            yield f"a step with the {name} {found}, not floats [{size}, {vocab_size}]"
    rows, ids = step.rows.tolist(), step.next_ids.tolist()
    if len(set(rows)) < size or not unfinished.issuperset(rows):
        left = ", ".join(map(str, sorted(unfinished))) or "none"
        yield f"tokens to the rows {rows}; unfinished are: {left}"
    if beyond := [i for i in ids if not 0 <= i < vocab_size]:
        yield f"the id {beyond[0]}; ids are 0 to {vocab_size - 1}"


def _is(tensor: Any, *shape: int) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.shape == shape


def _short(value: object) -> str:
    """What was found, on one line."""
    if isinstance(value, torch.Tensor) and (value.ndim != 1 or value.numel() > 16):
        return f"{value.dtype} {list(value.shape)}"
    return reprlib.repr(value)
