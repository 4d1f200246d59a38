"""A pipeline made fit for the laws, and the cases that it is tried on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from genkit.components.caches import Prefix
from genkit.core.contracts import Cache, name_of
from genkit.core.limits import Limits
from genkit.errors import GenkitError
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case, Prompt
from genkit.testing.laws.variant import variant_of

NUM_ROWS = 3
_NUM_TOKENS = 8
_SPARE = 32  # tokens by which laws lengthen a prompt: padding, a next turn
_UNBOUNDED = 10**9

_TEXTS = (
    "Hello!",
    "Count from one to ten.",
    "What is the capital of France?",
    "Translate into German: the cat sleeps.",
    "Why is the sky blue? Answer in one sentence.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time there was a lighthouse keeper who had never seen the sea.",
    "1, 1, 2, 3, 5, 8, 13. Which number comes next?",
)
"""Short texts, so that laws meet distributions of the kind that a model is made for."""


@dataclass(frozen=True)
class Trial:
    """What the laws are tried on.

    Attributes:
        pipeline: that of the recipe, without what keeps a run from being repeated or outlasts it.
        cases: as many as were asked for.
        notes: what was left out of the pipeline, and why.
    """

    pipeline: Pipeline
    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, pipeline: Pipeline, num_cases: int, seed: int) -> Trial:
        """The same cases each time, for the same pipeline, number and seed."""
        choices = random.Random(seed)
        # Every second case is of plain text: it is shorter, and no context has made it uniform.
        cases = tuple(
            _case(pipeline, choices, seed + i, plain=bool(i % 2)) for i in range(num_cases)
        )
        longest = max(len(prompt) for case in cases for prompt in case.prompts)
        needed = longest + 2 * _NUM_TOKENS + _SPARE
        criteria, notes = _fit_for_laws(pipeline.parts.stop_criteria, needed)
        cache, note = _without_files(pipeline.parts.cache)
        fit = variant_of(pipeline, stop_criteria=criteria, cache=cache)
        if hasattr(pipeline.model, "cache_must_use"):
            fit.model = OnAnyCache(pipeline.model)
        return cls(fit, cases, notes + note)


class OnAnyCache:
    """A model that also runs on caches that it was not loaded for, to be compared with them.

    Args:
        model: one with `cache_must_use`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, attribute: str) -> Any:
        """Everything else is the model's own."""
        if attribute == "cache_must_use" or attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self._model, attribute)

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """What the model gives."""
        logits: torch.Tensor = self._model(input_ids, cache)
        return logits


def goes_by_the_clock(criterion: Any) -> bool:
    """Whether a stop criterion ends rows by time, so that no run can be repeated."""
    return getattr(criterion, "finish_reason", None) == "time"


def _case(pipeline: Pipeline, choices: random.Random, choice: int, *, plain: bool) -> Case:
    length = pipeline.model.context_length
    num_tokens = _NUM_TOKENS if length is None else max(1, min(_NUM_TOKENS, length // 4))
    room = _UNBOUNDED if length is None else length - num_tokens
    prompts = sorted(_prompts(pipeline, choices, plain), key=len)
    # Prompts of a small model are cut to different lengths.
    cut = (prompt[-max(1, room * (i + 1) // NUM_ROWS) :] for i, prompt in enumerate(prompts))
    seeds = tuple(choices.randrange(2**32) for _ in prompts)
    return Case(tuple(cut), seeds, num_tokens, choice)


def _prompts(pipeline: Pipeline, choices: random.Random, plain: bool) -> list[Prompt]:
    """Texts, plain or in the pipeline's context; random ids where there is no tokenizer."""
    if pipeline.tokenizer is not None:
        encode = pipeline.tokenizer.encode if plain else partial(_encode, pipeline)
        return [tuple(encode(text)) for text in choices.sample(_TEXTS, NUM_ROWS)]
    lengths = (choices.randint(3, 8), choices.randint(9, 20), choices.randint(21, 40))
    vocab_size = pipeline.model.vocab_size
    return [tuple(choices.randrange(vocab_size) for _ in range(length)) for length in lengths]


def _encode(pipeline: Pipeline, text: str) -> list[int]:
    tokenizer: Any = pipeline.tokenizer
    try:
        return pipeline.context.encode(text, tokenizer)
    except GenkitError:  # a context that takes something else than a string
        ids: list[int] = tokenizer.encode(text)
        return ids


def _without_files(manager: Any) -> tuple[Any, tuple[str, ...]]:
    """A manager that finds nothing on disk and leaves nothing there, and a note if it is another.

    What others have stored would make every run another one, and random texts are of no use later.
    """
    if not (isinstance(manager, Prefix) and manager.disk):
        return manager, ()
    return Prefix(max_bytes=manager.max_bytes), (
        "cache.disk was left out: the laws neither read nor write files, and prefixes were kept in "
        "memory only",
    )


def _fit_for_laws(criteria: Sequence[Any], needed: int) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The criteria that the laws can run with, and a note on each of the others."""
    kept: list[Any] = []
    notes: list[str] = []
    for i, criterion in enumerate(criteria):
        reason = _why_left_out(criterion, needed)
        if reason:
            notes.append(f"stop_criteria.{i} ({name_of(criterion)}) was left out: {reason}")
        else:
            kept.append(criterion)
    return tuple(kept), tuple(notes)


def _why_left_out(criterion: Any, needed: int) -> str:
    if goes_by_the_clock(criterion):
        return "it ends rows by the clock, and the laws compare runs that can be repeated"
    try:
        most = min(Limits(_UNBOUNDED, [criterion], needed).totals)
    except GenkitError:  # a law names the criterion
        return ""
    if most < needed:
        return f"the laws need rows of up to {needed} tokens, and it allows {most}"
    return ""
