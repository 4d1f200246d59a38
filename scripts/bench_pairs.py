"""What the benchmarks share: a row of the table, and how the two sides of a pair are timed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from genkit import Kit, Pipeline, backends
from genkit.core import contracts


@dataclass
class Row:
    """One line of the table."""

    name: str
    genkit: str
    peer: str
    ratios: list[float]
    target: str

    def __str__(self) -> str:
        median, low, high = statistics.median(self.ratios), min(self.ratios), max(self.ratios)
        return (
            f"| {self.name} | {self.genkit} | {self.peer} | "
            f"**{median:.2f}** ({low:.2f} to {high:.2f}, n={len(self.ratios)}) | {self.target} |"
        )


HEADER = "| what | genkit | peer | ratio: median (least to most) | target |\n|---|---|---|---|---|"


def alternating(count: int, *sides: Callable[[], float]) -> list[list[float]]:
    """`count` figures of each side, after one that does not count.

    They are taken round by round, each round in another order: what ran before leaves its mark, on
    clocks, caches and threads.
    """
    for side in sides:
        side()
    figures: list[list[float]] = [[] for _ in sides]
    order = list(range(len(sides)))
    shuffle = random.Random(0).shuffle
    for _ in range(count):
        shuffle(order)
        for i in order:
            figures[i].append(sides[i]())
    return figures


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# The real model.


def smollm2() -> contracts.Model:
    """The embedded model."""
    return Kit().load(backends.PyTorch(model="smollm2", dtype="float32"))


PROMPT = "The history of the city begins with"


def generated(model: contracts.Model, prompt: list[int], count: int) -> list[int]:
    """What transformers generates greedily after a prompt."""
    ids = torch.tensor([prompt])
    out = model.module.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
        min_new_tokens=count, eos_token_id=None, pad_token_id=0, repetition_penalty=1.0,
    )  # fmt: skip
    return out[0, len(prompt) :].tolist()


def seconds_of_generating(model: contracts.Model, prompt: list[int], tokens: int) -> float:
    """How long `transformers.generate` takes for `tokens` tokens after the first."""
    first = seconds(lambda: generated(model, prompt, 1))
    return seconds(lambda: generated(model, prompt, tokens + 1)) - first


def seconds_of_decoding(pipeline: Pipeline, prompt: list[int], tokens: int, room: int) -> float:
    """How long `tokens` tokens after the first take, in a run that may become `room` long."""
    steps = pipeline.decode(prompt, max_new_tokens=room - len(prompt))
    next(steps)
    try:
        return seconds(lambda: [next(steps) for _ in range(tokens)])
    finally:
        steps.close()
