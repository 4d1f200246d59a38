"""Tries a part on one row, without a model: what the examples in docstrings do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.testing.byte_tokenizer import ByteTokenizer

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


def ending(
    part: Any,
    generated: Sequence[int] | str,
    *,
    prompt: Sequence[int] = (0,),
    logits: Sequence[Sequence[float]] | None = None,
    eos: Sequence[int] = (),
) -> int | None:
    """After how many tokens a stop criterion ends a row.

    Args:
        part: the component.
        generated: the ids of the answer; or its text, which `ByteTokenizer` then reads: a letter
            of ASCII is a token.
        prompt: the ids before the answer, at least one.
        logits: what the model gave for each token of the answer.
        eos: the model's end tokens.

    Returns:
        The number of generated tokens with which the row ends; None: it goes on after all of them.
    """
    tokenizer = ByteTokenizer() if isinstance(generated, str) else None
    ids = generated.encode() if isinstance(generated, str) else generated
    vocab_size = len(logits[0]) if logits else ByteTokenizer.vocab_size
    given = None if logits is None else torch.tensor(logits)[:, None]
    steps = _steps(part, vocab_size, prompt, ids, eos, _FAR, 0, tokenizer, given)
    next(steps)  # nothing is generated yet
    return next((n for n, (bound, state) in enumerate(steps, 1) if bool(bound(state))), None)


def _steps(
    part: Any,
    vocab_size: int,
    prompt: Sequence[int],
    generated: Sequence[int],
    eos: Sequence[int],
    limit: int,
    seed: int,
    tokenizer: Any,
    logits: torch.Tensor | None = None,
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
    run.clock.start()
    state = GenerationState([prompt], [limit], RowRandom([seed], [0]))
    yield bound, state
    for i, token_id in enumerate(generated):
        state.append(torch.tensor([token_id]), None if logits is None else logits[i])
        yield bound, state
