"""How vectors of samplers are reproduced.

llama.cpp draws with numbers of a Mersenne twister and walks its candidates in the order in which
its filters left them. So the samplers get the engine's own numbers, and the vocabulary in the
engine's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from genkit.components.base import LogitsProcessor
from genkit.components.processors import Temperature, TopK, TopP
from genkit.components.samplers import AdaptiveP, Categorical, Greedy, Mirostat
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from vectors import PROBABILITY, Vector, numbers

CLOSE = 1e-4  # what the README of the vectors allows for samplers with feedback


class EngineRandom:
    """The numbers of llama.cpp: two words of a Mersenne twister each, seeded as C++ seeds it."""

    def __init__(self, seed: int) -> None:
        self.words = np.random.RandomState(seed)
        self.num_candidates = 2

    def uniform(self, purpose: str) -> torch.Tensor:
        """The next number; where one candidate is left, no words are used."""
        word = int.from_bytes(self.words.bytes(8), "little") if self.num_candidates > 1 else 0
        return torch.tensor([word * 2.0**-64], dtype=torch.float64)

    def advance(self) -> None:
        """The numbers go on by themselves."""


def start(part: Any, vocab_size: int, seed: int = 0) -> tuple[Any, GenerationState, EngineRandom]:
    """A sampler that is bound for one row, its state, and where its numbers come from."""
    rng = EngineRandom(seed)
    run = Run(((0,),), (0,), (0,), (1000,), (0,), vocab_size=vocab_size)
    return part.bind(run), GenerationState([[0]], [1000], rng), rng  # type: ignore[arg-type]


def dist(vector: Vector) -> None:
    """Eight draws of one sampler from the same row."""
    sampler, state, _ = start(Categorical(), vector.logits.shape[-1], vector.params["seed"])
    assert [int(sampler(state, vector.logits)) for _ in vector["tokens"]] == vector["tokens"]


def greedy(vector: Vector) -> None:
    sampler, state, _ = start(Greedy(), vector.logits.shape[-1])
    assert sampler(state, vector.logits).tolist() == [vector["token"]]


def mirostat(vector: Vector) -> None:
    """Each step: mu, the distribution that is drawn from, and the token."""
    params = vector.params
    part = Mirostat(
        version=1 if vector["op"] == "mirostat_v1" else 2,
        tau=params["tau"],
        eta=params["eta"],
        num_estimated=params.get("m", 100),
        huge_k="keeps_one",
    )
    size = len(vector["steps"][0]["logits"][0])
    assert params.get("n_vocab", size) == size
    sampler, state, rng = start(part, size, params["seed"])
    for step in vector["steps"]:
        kept = step["out_order"]
        order = [*kept, *(i for i in range(size) if i not in kept)]
        logits = numbers(step["logits"])[:, order]
        mu = sampler.mu.at(state)
        assert math.isclose(float(mu), step["mu_before"], rel_tol=CLOSE)
        probs = sampler.truncated(logits, mu)
        assert (probs - numbers(step["out_probs"])[:, order]).abs().max() <= PROBABILITY
        out_logits = logits.masked_fill(probs == 0, -math.inf)
        assert torch.equal(out_logits, numbers(step["out_logits"])[:, order])
        rng.num_candidates = len(kept)
        ids = sampler(state, logits)
        assert order[int(ids)] == step["token"]
        state.append(ids)
        assert math.isclose(float(sampler.mu.at(state)), step["mu_after"], rel_tol=CLOSE)


def adaptive_p(vector: Vector) -> None:
    """Each step: the sums, the logits that are drawn from, and the token; not all of them come."""
    params = vector.params
    part = AdaptiveP(
        target=min(params["target"], 1.0),
        decay=min(params["decay"], 0.99),
        # A target above 1 counts as 1, but the average begins with it as it is.
        start=max(params["target"], 0.0),
    )
    sampler, state, _ = start(part, len(vector["steps"][0]["logits"][0]), params["seed"])
    for step in vector["steps"]:
        logits = numbers(step["logits"])
        out_logits = logits.double()
        if part.target >= 0:
            sums = sampler.sums.at(state)
            expected = [[step["weighted_sum_before"], step["total_weight_before"]]]
            torch.testing.assert_close(sums, numbers(expected).double(), rtol=CLOSE, atol=CLOSE)
            out_logits = sampler.reshaped(logits, logits.softmax(-1, dtype=torch.float64), sums)
        right = numbers(step["out_logits"]).double()
        torch.testing.assert_close(out_logits, right, rtol=CLOSE, atol=CLOSE)
        assert (out_logits.softmax(-1) - numbers(step["out_probs"])).abs().max() <= PROBABILITY
        assert sampler(state, logits).tolist() == [step["token"]]
        state.append(torch.tensor([step["accepted"]]))


BELIEVED = 1e-4
"""A test fails where chance would deviate as far as this in fewer cases."""


def draw_counts(vector: Vector) -> None:
    """The engine's counts fit the distribution, and as many draws of the sampler fit the counts.

    Which of equal tokens the engine keeps is an accident of its sort, so they are counted together.
    """
    params, rows = vector.params, vector["draws"]
    parts: list[LogitsProcessor] = [Temperature(temperature=params["temperature"])]
    if params["top_k"] > 0:
        parts.append(TopK(k=params["top_k"]))
    if params["top_p"] > 0:
        parts.append(TopP(p=params["top_p"]))
    elif params["top_k"] == 0:  # then this engine takes the most probable token
        parts.append(TopK(k=1))
    logits = vector.apply(parts)
    run = Run((), (), (), (), (), vocab_size=logits.shape[-1], purpose="categorical:0")
    state = GenerationState([[0]] * rows, [9] * rows, RowRandom(range(rows), [0] * rows))
    ids = Categorical().bind(run)(state, logits.expand(rows, -1))

    _, group = vector.logits[0].unique(return_inverse=True)
    probs = logits[0].softmax(-1, dtype=torch.float64)
    expected = rows * torch.bincount(group, weights=probs)
    counts = torch.bincount(group, weights=torch.tensor(vector["counts"][0]).double())
    drawn = torch.bincount(group[ids]).double()
    drawn = torch.nn.functional.pad(drawn, (0, len(counts) - len(drawn)))
    assert counts.sum() == rows and bool((counts[expected == 0] == 0).all())
    assert chance((counts - expected) ** 2 / expected, expected) > BELIEVED
    assert chance((counts - drawn) ** 2 / (counts + drawn), expected) > BELIEVED


def chance(distances: torch.Tensor, expected: torch.Tensor) -> float:
    """How probable it is that counts deviate so far; rare tokens say nothing."""
    frequent = expected >= 10
    freedom = torch.tensor((int(frequent.sum()) - 1) / 2, dtype=torch.float64)
    return (
        float(torch.special.gammaincc(freedom, distances[frequent].sum() / 2)) if freedom else 1.0
    )


OPS: dict[tuple[str, str], Callable[[Vector], None]] = {
    ("llama.cpp", "adaptive_p"): adaptive_p,
    ("llama.cpp", "dist"): dist,
    ("llama.cpp", "greedy"): greedy,
    ("llama.cpp", "mirostat_v1"): mirostat,
    ("llama.cpp", "mirostat_v2"): mirostat,
    ("onnxruntime-genai", "draw_counts"): draw_counts,
}
"""By engine and operation: reproduces a vector, or fails."""

EXCUSED: dict[str, str] = {}
"""Vectors that are not reproduced, and why."""
