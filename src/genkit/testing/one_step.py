"""Tries a part on one row, without a model: what the examples in docstrings do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState

_FAR = 1000


def process(
    part: Any,
    logits: Sequence[float],
    *,
    prompt: Sequence[int] = (0,),
    generated: Sequence[int] = (),
    eos: Sequence[int] = (),
    limit: int = _FAR,
    seed: int = 0,
    tokenizer: Any = None,
) -> list[float]:
    """What a logits processor makes of one row.

    Args:
        part: the component.
        logits: one a token of the vocabulary.
        prompt: the ids before the answer, at least one.
        generated: the ids of the answer so far. A part with state is called before each of them,
            as in a run.
        eos: the model's end tokens.
        limit: the most tokens the row may reach, its prompt included.
        seed: of the row's draws.
        tokenizer: for parts that read text.

    Returns:
        The new logits, rounded to 4 digits behind the point; ``-inf`` is forbidden.
    """
    for bound, state in _steps(part, len(logits), prompt, generated, eos, limit, seed, tokenizer):
        given = torch.tensor([list(logits)])
        out = given if bound is None else bound(state, given)
    return [round(x, 4) + 0.0 if math.isfinite(x) else x for x in out[0].tolist()]


def choose(
    part: Any,
    logits: Sequence[float],
    *,
    prompt: Sequence[int] = (0,),
    generated: Sequence[int] = (),
    seed: int = 0,
    tokenizer: Any = None,
) -> int:
    """The token that a sampler chooses; the arguments are those of `process`."""
    for bound, state in _steps(part, len(logits), prompt, generated, (), _FAR, seed, tokenizer):
        ids = bound(state, torch.tensor([list(logits)]))
    return int(ids)


def _steps(
    part: Any,
    vocab_size: int,
    prompt: Sequence[int],
    generated: Sequence[int],
    eos: Sequence[int],
    limit: int,
    seed: int,
    tokenizer: Any,
) -> Any:
    """The bound part, and the state before each step of the run; the last is the one asked for."""
    run = Run(
        prompts=(tuple(prompt),),
        seeds=(seed,),
        samples=(0,),
        limits=(limit,),
        rows=(0,),
        vocab_size=vocab_size,
        eos_token_ids=frozenset(eos),
        tokenizer=tokenizer,
    )
    bound = part.bind(run)
    state = GenerationState([prompt], [limit], RowRandom([seed], [0]))
    yield bound, state
    for token_id in generated:
        state.append(torch.tensor([token_id]))
        yield bound, state
