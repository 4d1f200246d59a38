"""The loop: predict, select, append, stop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from genkit.core.contracts import (
    CacheManager,
    LogitsProcessor,
    Model,
    Sampler,
    StopCriterion,
    label_of,
    name_of,
)
from genkit.core.result import Step, Stop
from genkit.core.state import GenerationState
from genkit.errors import EmptyRowError, ModelOutputError, PartError, RunError


def autoregressive(
    model: Model,
    manager: CacheManager,
    processors: Sequence[LogitsProcessor],
    sampler: Sampler,
    stop_criteria: Sequence[StopCriterion],
    state: GenerationState,
) -> Iterator[Step]:
    """Generate one token a row and step until every row has finished.

    The first pass through the loop is the prefill: the cache is empty and the whole prompt is fed.
    Every later pass is a decode step: the cache lacks only the token just appended. Without a cache
    its length stays 0, and each pass feeds everything.

    Yields:
        A `Step` for the rows that have not finished yet.

    Raises:
        ModelOutputError: the model gave NaN or infinity where a token was to be chosen.
        EmptyRowError: no token of a row is allowed.
    """
    cache = manager.acquire(model, state)
    try:
        while True:
            stages = [model(state.since(cache.length), cache)]
            for processor in processors:
                stages.append(processor(state, stages[-1]))
            next_ids = sampler(state, stages[-1])

            drawn = next_ids.clamp(min=0)
            chosen = stages[-1].gather(-1, drawn.unsqueeze(-1))
            state.append(drawn)
            flags = [criterion(state) for criterion in stop_criteria]

            ids, values, *marks = to_host(next_ids, chosen, *flags)
            if min(ids) < 0 or not all(math.isfinite(value) for [value] in values):
                raise why_nothing_was_drawn(state, stages, processors, sampler)
            stops = tuple(_stop(state, stop_criteria, marks, i) for i in range(len(state)))
            yield Step(state.rows, on_host(next_ids, ids), stages[0], stages[-1], stops)

            unfinished = [i for i, stop in enumerate(stops) if stop is None]
            if not unfinished:
                return
            if len(unfinished) < len(stops):
                keep_rows(unfinished, state, cache, *processors, sampler, *stop_criteria)
    finally:
        manager.release(cache, state)


def _stop(
    state: GenerationState,
    criteria: Sequence[StopCriterion],
    marks: Sequence[Sequence[bool]],
    i: int,
) -> Stop | None:
    """Why row `i` ends now: the first criterion in the list that says so, or None."""
    for criterion, mark in zip(criteria, marks, strict=True):
        if mark[i]:
            report = getattr(criterion, "report", None)
            details = report(state, i) if report is not None else {}
            reason = getattr(criterion, "finish_reason", "stop")
            return Stop(name_of(criterion), finish_reason=reason, **details)
    return None


def keep_rows(indices: Sequence[int], *holders: object) -> None:
    """Reorder everything that holds rows; a callable without `reorder` holds none."""
    for holder in holders:
        reorder = getattr(holder, "reorder", None)
        if reorder is not None:
            reorder(indices)


def to_host(*tensors: torch.Tensor) -> list[Any]:
    """The values of several tensors of one row each, as lists, with one wait for the device.

    float64 holds token ids exactly, so that ids, logits and marks can travel together.
    """
    if tensors[0].device.type == "cpu":
        return [tensor.tolist() for tensor in tensors]
    packed = torch.cat([tensor.flatten().to(torch.float64) for tensor in tensors]).to("cpu")
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [
        part.to(tensor.dtype).view(tensor.shape).tolist()
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def on_host(tensor: torch.Tensor, values: Sequence[float]) -> torch.Tensor:
    """The tensor on the host, made of its values where it lives elsewhere."""
    return tensor if tensor.device.type == "cpu" else torch.tensor(values, dtype=tensor.dtype)


def why_nothing_was_drawn(
    state: GenerationState,
    stages: Sequence[torch.Tensor],
    processors: Sequence[LogitsProcessor],
    sampler: Sampler,
) -> RunError:
    """Search the intact outputs of a failed step for the part that is to blame."""
    for i in range(len(state)):
        where = f"row {state.rows[i]}, step {state.num_generated[i] - 1}"
        if not _drawable(stages[0][i]):
            return ModelOutputError(
                f"{where}: the model gave {_describe(stages[0][i])}. A model in float16 that "
                "overflows is the usual cause: try `backend.dtype: float32` or `bfloat16`"
            )
        for processor, before, after in zip(processors, stages, stages[1:], strict=False):
            if not _drawable(after[i]):
                found = _describe(after[i])
                message = (
                    f"{where}: after {label_of(processor)} the row has {found}; "
                    f"before it {int(before[i].isfinite().sum())} tokens were allowed"
                )
                is_empty = bool((after[i] == -math.inf).all())
                return EmptyRowError(message) if is_empty else PartError(message)
    return PartError(
        f"step {int(state.num_generated[0]) - 1}: {label_of(sampler)} chose a token "
        "that is forbidden, or none, though every row has tokens that are allowed"
    )


def _drawable(logits: torch.Tensor) -> bool:
    return not bool((logits.isnan() | (logits == math.inf)).any()) and bool(logits.isfinite().any())


def _describe(logits: torch.Tensor) -> str:
    for count, what in (
        (int(logits.isnan().sum()), "NaN"),
        (int((logits == math.inf).sum()), "+inf"),
    ):
        if count:
            return f"{what} in {count} of {len(logits)} logits"
    return "no token that is allowed (every logit is -inf)"
