"""Checks for the tests of plugins: all laws of a kind of part, on many drawn runs.

A check is one line of a test: ``check_logits_processor(MyProcessor(strength=2))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from genkit.core.contracts import name_of
from genkit.core.settings import plain
from genkit.errors import FAILURES, UnsupportedError
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.checks.drawn import need_hypothesis, run_drawn
from genkit.testing.checks.edge_histories import edge_histories
from genkit.testing.laws.admission import refuse_other_kinds
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.part import PartLaw, global_generators_kept
from genkit.testing.laws.processor import PROCESSOR_LAWS
from genkit.testing.laws.rehearsal import Kind
from genkit.testing.laws.sampler import DRAWS_BY_PROBABILITY, SAMPLER_LAWS
from genkit.testing.laws.stop_criterion import ENDS_BY_A_FAR_BOUND, STOP_CRITERION_LAWS
from genkit.text.tokenizer import Tokenizer

__all__ = ["check_logits_processor", "check_sampler", "check_stop_criterion", "hold_part_to"]

_VOCAB_SIZE = 12
_EOS_TOKEN_IDS = (1,)


def check_logits_processor(
    part: Any,
    *,
    vocab_size: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_examples: int | None = None,
) -> list[PartLaw]:
    """Hold a logits processor to `PROCESSOR_LAWS`.

    First come a few fixed runs in which one token is allowed, or two.

    Args:
        part: a component or a plain callable.
        vocab_size: width of the logits; by default the tokenizer's, or small without one. Give it
            where options name ids that a small vocabulary does not have.
        tokenizer: the model's. By default there is none, or `ByteTokenizer` for a part that refuses
            to be bound without.
        max_examples: how many runs are drawn; by default what the active profile of Hypothesis
            says.

    Returns:
        The laws that were tried; each has a `name` and a `statement`.

    Raises:
        LawBroken: a law is broken; the run drawn is made as small as possible first.
        TypeError: `part` is a class, or a part of another kind.
        MissingPackageError: Hypothesis is not installed.
    """
    hold_part_to("logits_processor", PROCESSOR_LAWS, part, vocab_size, tokenizer, max_examples)
    return list(PROCESSOR_LAWS)


def check_sampler(
    part: Any,
    *,
    distribution: bool = False,
    vocab_size: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_examples: int | None = None,
) -> list[PartLaw]:
    """Hold a sampler to `SAMPLER_LAWS`.

    Args:
        part, vocab_size, tokenizer, max_examples: as for `check_logits_processor`.
        distribution: whether it is to draw each token with its probability, which is then tested
            with fixed seeds.

    Returns:
        The laws that were tried.

    Raises:
        LawBroken, TypeError, MissingPackageError: as `check_logits_processor`.
    """
    hold_part_to("sampler", SAMPLER_LAWS, part, vocab_size, tokenizer, max_examples)
    if not distribution:
        return list(SAMPLER_LAWS)
    DRAWS_BY_PROBABILITY(part, _distributions(vocab_size or _VOCAB_SIZE, tokenizer))
    return [*SAMPLER_LAWS, DRAWS_BY_PROBABILITY]


def check_stop_criterion(
    part: Any,
    *,
    vocab_size: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_examples: int | None = None,
) -> list[PartLaw]:
    """Hold a stop criterion to `STOP_CRITERION_LAWS`.

    Ids and texts that its options mention come often in the runs that are drawn. A bound is tried
    by going there; one that leaves room for more than 20,000 tokens is believed.

    Args:
        part, vocab_size, tokenizer, max_examples: as for `check_logits_processor`.

    Returns:
        The laws that were tried.

    Raises:
        LawBroken, TypeError, MissingPackageError: as `check_logits_processor`.
    """
    laws = STOP_CRITERION_LAWS
    hold_part_to("stop_criterion", laws, part, vocab_size, tokenizer, max_examples)
    return list(laws)


def hold_part_to(
    kind: Kind,
    laws: Sequence[PartLaw],
    part: Any,
    vocab_size: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_examples: int | None = None,
) -> dict[str, str]:
    """Try each law on fixed runs and on each drawn run, and that of bounds on a long one too.

    Args:
        kind: of the part.
        laws: which.
        part, vocab_size, tokenizer, max_examples: as for `check_logits_processor`.

    Returns:
        The names of the laws that say nothing of the part in any of the runs, and why.

    Raises:
        LawBroken, TypeError, MissingPackageError: as `check_logits_processor`.
    """
    refuse_other_kinds(part, kind)
    need_hypothesis(name_of(part))
    from genkit.testing.strategies import histories

    if tokenizer is None and _needs_tokenizer(part, vocab_size or _VOCAB_SIZE):
        tokenizer = ByteTokenizer()
    size = vocab_size or (tokenizer.vocab_size if tokenizer else _VOCAB_SIZE)
    facts: dict[str, Any] = {
        "tokenizer": tokenizer,
        "eos_token_ids": _EOS_TOKEN_IDS,
        "favoured": sorted(set(_mentioned(plain(part), tokenizer))),
    }
    broken: list[PartLaw] = []
    held: set[str] = set()
    silent: dict[str, str] = {}

    def holds(history: History) -> None:
        with global_generators_kept():  # so that what reads them breaks the same law again
            for law in laws:
                try:
                    reason = law(part, history)
                except LawBroken:
                    broken.append(law)
                    if law is broken[0]:  # a smaller run is to break the same law
                        raise
                    continue
                if reason:
                    silent.setdefault(law.name, reason)
                else:
                    held.add(law.name)

    fixed = edge_histories(size, **facts)
    for history in fixed:
        holds(history)
    if ENDS_BY_A_FAR_BOUND.name in {law.name for law in laws}:
        ENDS_BY_A_FAR_BOUND(part, fixed[0])
    run_drawn(holds, histories(size, **facts), max_examples=max_examples)
    return {name: reason for name, reason in silent.items() if name not in held}


def _needs_tokenizer(part: Any, vocab_size: int) -> bool:
    """Whether a part refuses to be bound without a tokenizer."""
    row = Row((0,), (0,), torch.zeros(1, vocab_size))
    try:
        getattr(part, "bind", lambda run: part)(History((row,)).run(name_of(part)))
    except UnsupportedError:
        return True
    except FAILURES:  # a law will name it
        return False
    return False


def _mentioned(value: Any, tokenizer: Tokenizer | None) -> Iterator[int]:
    """Ids that options may mean: whole numbers, and the ids of texts."""
    if isinstance(value, str):
        yield from tokenizer.encode(value, add_special_tokens=False) if tokenizer else ()
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, Mapping):
        yield from _mentioned([*value.keys(), *value.values()], tokenizer)
    elif isinstance(value, list):
        for item in value:
            yield from _mentioned(item, tokenizer)


def _distributions(vocab_size: int, tokenizer: Tokenizer | None) -> History:
    """One row whose steps have different distributions: flat, steep, with forbidden tokens."""
    flat = torch.zeros(vocab_size)
    steep = torch.arange(vocab_size) * -0.7
    holes = steep.flip(0).masked_fill(torch.arange(vocab_size) % 3 == 1, -torch.inf)
    steps = torch.stack((flat, steep, holes, 1e4 + steep * 0.5))
    return History((Row((0,), (0,) * len(steps), steps),), tokenizer=tokenizer)
