"""Hypothesis strategies: models, pipelines and cases for the laws of decoding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from hypothesis import strategies as st

from genkit.components.processors import RepetitionPenalty, TopK
from genkit.components.samplers import Categorical, Greedy
from genkit.components.stopping import Eos
from genkit.core import contracts
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.tiny_model import TinyModel

ARCHITECTURES: tuple[dict[str, Any], ...] = (
    {"positions": "learned", "num_layers": 1},
    {},
    {"positions": "learned", "window": 3, "num_layers": 1},
    {"window": 4, "num_layers": 1, "num_heads": 4, "num_kv_heads": 4},
    {"positions": "learned", "window": (None, 4)},
    {"window": (5, None), "num_heads": 6, "num_kv_heads": 3},
    {"positions": "alibi", "window": (4, 2), "num_heads": 4, "num_kv_heads": 1},
)
"""Options of `TinyModel`: kinds of positions, windows that may differ by layer, head layouts."""

LONG_ARCHITECTURES: tuple[dict[str, Any], ...] = (
    {},
    {"positions": "learned", "window": (40, None)},
    {"positions": "alibi", "num_layers": 1},
)
"""Options of `TinyModel` for `long_trials`; there is a layer that sees everything in each."""

_LONG = (((3, 150), 3), ((70, 45), 12), ((110, 6, 60), 3))
"""Lengths of prompts, and how many tokens are generated.

Some rows are long together, and some have much padding beside others. Many tokens are generated
where the rows are the shortest, as laws compute all of it anew for each of them.
"""

_ENDLESS = 10**9

_PROCESSORS: tuple[tuple[Any, ...], ...] = ((), (RepetitionPenalty(penalty=3.0), TopK(k=20)))

_SAMPLERS = (Greedy(), Categorical())

_END_IDS = range(0, 260, 9)  # one step in nine ends a row, so that rows leave at different times

_FEWEST = (2, 2, 2, 2, 2, 2, 2, 1)


def tiny_models(dtype: torch.dtype = torch.float64) -> st.SearchStrategy[TinyModel]:
    """Small random models; equal draws give the same object."""
    architectures = st.integers(0, len(ARCHITECTURES) - 1)
    return st.builds(_tiny_model, architectures, st.integers(0, 2), st.just(dtype))


@lru_cache(maxsize=64)
def _tiny_model(architecture: int, seed: int, dtype: torch.dtype) -> TinyModel:
    options = ARCHITECTURES[architecture]
    return TinyModel(seed, dtype=dtype, eos_token_ids=_END_IDS, **options)


def pipelines(
    models: st.SearchStrategy[Any],
    managers: st.SearchStrategy[Any],
    decoders: st.SearchStrategy[Any] | None = None,
) -> st.SearchStrategy[Pipeline]:
    """Pipelines over these models and managers, greedy or drawing, with and without processors."""
    return st.builds(
        _pipeline,
        models,
        managers,
        st.none() if decoders is None else decoders,
        st.sampled_from(_PROCESSORS),
        st.sampled_from(_SAMPLERS),
    )


def _pipeline(
    model: Any, manager: Any, decoder: Any, processors: Sequence[Any], sampler: Any
) -> Pipeline:
    return Pipeline(
        model,
        cache=manager,
        decoder=decoder,
        processors=processors,
        sampler=sampler,
        stop_criteria=[Eos()],
    )


@st.composite
def cases(draw: Callable[..., Any], model: contracts.Model, longest: int = 10) -> Case:
    """One to three short prompts, half of the time with a common beginning."""
    ids = st.integers(0, model.vocab_size - 1)
    length = _ENDLESS if model.context_length is None else model.context_length
    room, most_tokens = min(longest, length // 4), max(1, min(5, length // 2))
    stem = tuple(draw(st.lists(ids, max_size=room // 2)))
    ending = st.lists(ids, min_size=1, max_size=max(1, room - len(stem))).map(tuple)
    # One row, or one token, leaves most laws nothing to compare: mostly there are more.
    fewest = draw(st.sampled_from(_FEWEST))
    prompts = draw(st.lists(ending.map(lambda end: stem + end), min_size=fewest, max_size=3))
    seeds = draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(prompts), max_size=len(prompts)))
    num_tokens = draw(st.integers(min(fewest, most_tokens), most_tokens))
    return Case(tuple(prompts), tuple(seeds), num_tokens, draw(st.integers(0, 2**16 - 1)))


def long_trials(
    model: contracts.Model | None, manager: Any, decoder: Any
) -> Iterator[tuple[Pipeline, Case]]:
    """A few long cases, always the same, as mistakes may show only beyond some length.

    Args:
        model: what runs; None: a small random model of another architecture for each case.
        manager, decoder: the pipeline's.
    """
    choices = random.Random(0)
    for i, (lengths, most_tokens) in enumerate(_LONG):
        options = LONG_ARCHITECTURES[i % len(LONG_ARCHITECTURES)]
        runs = TinyModel(i, dtype=torch.float64, **options) if model is None else model
        room = _ENDLESS if runs.context_length is None else runs.context_length
        most = max(1, room * 3 // 4)
        num_tokens = max(1, min(most_tokens, room // 4))
        prompts = tuple(
            tuple(choices.randrange(runs.vocab_size) for _ in range(min(length, most)))
            for length in lengths
        )
        seeds = tuple(choices.randrange(2**64) for _ in lengths)
        pipeline = _pipeline(
            runs, manager, decoder, _PROCESSORS[i % len(_PROCESSORS)], _SAMPLERS[i % len(_SAMPLERS)]
        )
        yield pipeline, Case(prompts, seeds, num_tokens, choices.randrange(2**16))
