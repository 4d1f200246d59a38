"""The loop: predict, select, append, stop."""

from __future__ import annotations

from collections.abc import Sequence

from genkit.core.contracts import (
    CacheManager,
    LogitsProcessor,
    Model,
    Sampler,
    StopCriterion,
    name_of,
)
from genkit.core.failure import all_drawn, why_nothing_was_drawn
from genkit.core.host import on_host, to_host
from genkit.core.result import Step, Steps, Stop
from genkit.core.state import GenerationState


def autoregressive(
    model: Model,
    manager: CacheManager,
    processors: Sequence[LogitsProcessor],
    sampler: Sampler,
    stop_criteria: Sequence[StopCriterion],
    state: GenerationState,
) -> Steps:
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
            # Predict: feed what the cache does not hold; the logits are those of the last position.
            stages = [model(state.since(cache.length), cache)]
            for processor in processors:
                stages.append(processor(state, stages[-1]))

            # Select and append. A row for which no token was found has -1, which is no id to go on
            # with; the step fails below.
            next_ids = sampler(state, stages[-1])
            chosen_ids = next_ids.clamp(0, model.vocab_size - 1)
            chosen_logits = stages[-1].gather(-1, chosen_ids.unsqueeze(-1))
            state.append(chosen_ids, stages[0])

            # Stop. Everything that the host must know of the step travels at once.
            marks = [criterion(state) for criterion in stop_criteria]
            ids, values, *marked = to_host(next_ids, chosen_logits, *marks)
            if not all_drawn(ids, values, model.vocab_size):
                raise why_nothing_was_drawn(state, stages, processors, sampler)
            stops = why_rows_end(state, stop_criteria, marked)
            yield Step(state.rows.clone(), on_host(next_ids, ids), stages[0], stages[-1], stops)

            # Rows that have ended leave.
            unfinished = [i for i, stop in enumerate(stops) if stop is None]
            if not unfinished:
                return
            if len(unfinished) < len(stops):
                keep_rows(unfinished, state, cache, *processors, sampler, *stop_criteria)
    finally:
        manager.release(cache, state)


def why_rows_end(
    state: GenerationState, criteria: Sequence[StopCriterion], marked: Sequence[Sequence[bool]]
) -> tuple[Stop | None, ...]:
    """For each row the first criterion in the list that ends it now, or None."""
    if not any(True in rows for rows in marked):
        return (None,) * len(state)
    return tuple(
        next(
            (_stop(state, c, i) for c, rows in zip(criteria, marked, strict=True) if rows[i]), None
        )
        for i in range(len(state))
    )


def _stop(state: GenerationState, criterion: StopCriterion, i: int) -> Stop:
    report = getattr(criterion, "report", None)
    details = {} if report is None else report(state, i)
    reason = getattr(criterion, "finish_reason", "stop")
    return Stop(name_of(criterion), finish_reason=reason, **details)


def keep_rows(indices: Sequence[int], *holders: object) -> None:
    """Reorder everything that holds rows; a callable without `reorder` holds none."""
    for holder in holders:
        reorder = getattr(holder, "reorder", None)
        if reorder is not None:
            reorder(indices)
