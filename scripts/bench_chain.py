"""What choosing a token costs: a chain of processors and a draw, without any model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_pairs import Row, alternating, seconds, smollm2
from transformers.generation import logits_process as theirs

from genkit import caches, decoders, processors, samplers
from genkit.components.fast_chain import collapsed
from genkit.core.binding import Parts
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState

ROOT = Path(__file__).parent.parent
VOCAB_SIZE = 128_256
FAR = 1_000_000
NUM_LOGITS = 4  # different logits, in turn


def logits_of(num_rows: int) -> list[torch.Tensor]:
    """Logits of several steps, with a standard deviation of 3."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(num_rows, VOCAB_SIZE, generator=generator) * 3 for _ in range(NUM_LOGITS)]


def texts(num_rows: int, length: int) -> torch.Tensor:
    """What this project's pages say, as SmolLM2 reads it, ids `[num_rows, length]`.

    The ids are spread over the larger vocabulary. A text repeats itself as texts do: 8,000 ids of
    it are some 1,350 different ones.
    """
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    words = smollm2().tokenizer.encode("".join(page.read_text("utf-8") for page in pages))
    spread = torch.randperm(VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    step = (len(words) - length) // num_rows
    return spread[torch.tensor([words[i * step :][:length] for i in range(num_rows)])]


def ours(chain: Sequence[Any], ids: torch.Tensor, steps: int) -> Callable[[], float]:
    """The time of a step of a run that goes on, as the loop takes them."""
    num_rows, length = ids.shape
    run = Run(
        prompts=tuple(map(tuple, ids.tolist())), seeds=(1,) * num_rows, samples=(0,) * num_rows,
        limits=(length + FAR,) * num_rows, rows=tuple(range(num_rows)), vocab_size=VOCAB_SIZE,
    )  # fmt: skip
    parts = Parts(decoders.Autoregressive(), caches.NoCache(), chain, samplers.Categorical(), ())
    bound = collapsed(parts.bind(run))
    state = GenerationState(run.prompts, run.limits, RowRandom(run.seeds, run.samples))
    given = logits_of(num_rows)

    def choose() -> None:
        for i in range(steps):
            logits = given[i % NUM_LOGITS]
            for processor in bound.processors:
                logits = processor(state, logits)
            state.append(bound.sampler(state, logits))

    return lambda: seconds(choose) / steps


def transformers(top_k: bool, ids: torch.Tensor, steps: int) -> Callable[[], float]:
    """The time of a step of transformers' processors and a draw."""
    chain = theirs.LogitsProcessorList(
        [
            theirs.RepetitionPenaltyLogitsProcessor(1.1),
            theirs.TemperatureLogitsWarper(0.8),
            *([theirs.TopKLogitsWarper(50)] if top_k else []),
            theirs.TopPLogitsWarper(0.95),
            theirs.MinPLogitsWarper(0.05),
        ]
    )
    given = logits_of(len(ids))

    def choose() -> None:
        for i in range(steps):
            # The repetition penalty of transformers writes into what it is given.
            scores = chain(ids, given[i % NUM_LOGITS].clone())
            torch.multinomial(scores.softmax(-1), 1)

    return lambda: seconds(choose) / steps


def chain_of(top_k: bool) -> list[Any]:
    """The chain that is measured."""
    return [
        processors.RepetitionPenalty(penalty=1.1),
        processors.Temperature(temperature=0.8),
        *([processors.TopK(k=50)] if top_k else []),
        processors.TopP(p=0.95),
        processors.MinP(min_p=0.05),
    ]


def chain(count: int, steps: int) -> Iterator[Row]:
    """A whole chain against that of transformers, with a history of 512 tokens."""
    for num_rows, top_k, target in (
        (1, True, "at least 18"),
        (8, True, "at least 25"),
        (1, False, "at least 12"),
        (8, False, "at least 12"),
    ):
        ids = texts(num_rows, 512)
        mine, peer = alternating(
            count, ours(chain_of(top_k), ids, 8 * steps), transformers(top_k, ids, steps)
        )
        rows = "1 row" if num_rows == 1 else f"{num_rows} rows"
        yield Row(
            f"penalty, temperature, {'top_k, ' if top_k else ''}top_p, min_p, draw; {rows}",
            f"{statistics.median(mine) * 1e3:.2f} ms",
            f"transformers {statistics.median(peer) * 1e3:.2f} ms",
            [b / a for a, b in zip(mine, peer, strict=True)],
            target,
        )


def history(count: int, steps: int) -> Iterator[Row]:
    """The cost of a chain after a long text against that after a short one."""
    remembering = [
        processors.NoRepeatNGram(n=3),
        processors.Dry(multiplier=0.8, breakers=[]),
        processors.FrequencyPenalty(penalty=0.2, scope="all"),
    ]
    for name, parts in (
        ("the chain", chain_of(True)),
        ("n-gram ban, DRY, frequency penalty and the chain", [*remembering, *chain_of(True)]),
    ):
        far = texts(1, 8000)
        near, long = alternating(
            count, ours(parts, far[:, :100], 8 * steps), ours(parts, far, 8 * steps)
        )
        yield Row(
            f"time a token at a history of 8,000 against 100: {name}",
            f"{statistics.median(long) * 1e3:.2f} ms",
            f"itself at 100: {statistics.median(near) * 1e3:.2f} ms",
            [b / a for a, b in zip(near, long, strict=True)],
            "at most 1.10",
        )
