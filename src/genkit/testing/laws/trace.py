"""What one row of a run did, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from genkit.core.result import Step, Stop
from genkit.pipeline import Pipeline


@dataclass
class Trace:
    """The ids of a row and the logits they were chosen from, as copies on the host.

    Attributes:
        prompt, seed: what the row began with.
        ids: the ids chosen.
        raw_logits: what the model gave at each step, `[vocab]`.
        logits: what the sampler got, `[vocab]`.
        stop: why the row ended.
    """

    prompt: tuple[int, ...]
    seed: int
    ids: list[int] = field(default_factory=list)
    raw_logits: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    stop: Stop | None = None

    def first(self, n: int) -> Trace:
        """A new trace of the first `n` steps, at which the row has not ended."""
        return Trace(self.prompt, self.seed, self.ids[:n], self.raw_logits[:n], self.logits[:n])


def add_step(step: Step, traces: Sequence[Trace]) -> None:
    """Take down one step; `traces` has one entry for each row of it."""
    # Copies: a part or a model that writes into what it has given away must not go unnoticed.
    raw_logits, logits = _copies(step.raw_logits), _copies(step.logits)
    for i, (trace, next_id) in enumerate(zip(traces, step.next_ids.tolist(), strict=True)):
        trace.ids.append(next_id)
        trace.raw_logits.append(raw_logits[i])
        trace.logits.append(logits[i])
        trace.stop = step.stops[i]


def new_traces(prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Trace]:
    """An empty trace for each row of a run."""
    return [Trace(tuple(ids), seed) for ids, seed in zip(prompts, seeds, strict=True)]


def trace_run(
    pipeline: Pipeline, prompts: Sequence[Sequence[int]], seeds: Sequence[int], num_tokens: int
) -> list[Trace]:
    """Run a batch to its end.

    Args:
        pipeline: what runs.
        prompts: the ids of each row's prompt.
        seeds: one for each prompt.
        num_tokens: the most tokens that a row generates.
    """
    traces = new_traces(prompts, seeds)
    ids = [list(prompt) for prompt in prompts]
    with torch.no_grad():
        for step in pipeline.decode(ids, seeds=list(seeds), max_new_tokens=num_tokens):
            add_step(step, [traces[row] for row in step.rows.tolist()])
    return traces


def _copies(logits: torch.Tensor) -> torch.Tensor:
    return logits.detach().to("cpu", copy=True)
