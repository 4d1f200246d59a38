"""The laws of samplers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from genkit.testing.laws.history import History, Row
from genkit.testing.laws.part import (
    Evidence,
    PartLaw,
    played,
    runs_without_an_error,
    shared_laws,
)
from genkit.testing.laws.rehearsal import Rehearsal, play

__all__ = ["DRAWS_BY_PROBABILITY", "SAMPLER_LAWS"]

# Draws for each distribution, and what chance has to deviate as far as it does to be believed.
_NUM_SEEDS = 2000
_BELIEVED = 1e-9
_LEAST_EXPECTED = 10.0  # the chi-square distribution describes counts from about there on


def gives_one_id_a_row(part: Any, history: History) -> Evidence:
    """The answer is int64 `[batch]`, on the device of the logits."""
    for step, ids in enumerate(played("sampler", part, history)):
        if ids.dtype != torch.int64 or ids.device != history.device:
            yield f"step {step}: returned {ids.dtype} on {ids.device}, not int64 {history.device}"


def draws_what_is_allowed(part: Any, history: History) -> Evidence:
    """Each id is one of the vocabulary, and one that is not forbidden."""
    for step, ids in enumerate(played("sampler", part, history)):
        logits = history.logits(step)
        for i, token_id in enumerate(ids.tolist()):
            if not 0 <= token_id < history.vocab_size:
                yield (
                    f"row {i}, step {step}: {token_id} is no id of a vocabulary of "
                    f"{history.vocab_size}, and there are tokens to draw from"
                )
            elif not logits[i, token_id].isfinite():
                yield f"row {i}, step {step}: token {token_id} is forbidden"


def shows_what_cannot_be_drawn(part: Any, history: History) -> Evidence:
    """A row without mass, or with NaN or +inf, gets -1 or an id whose logit is not finite.

    By either of them the loop sees that the step has failed. Other rows do not notice.
    """
    first, *others = history.rows
    expected = played("sampler", part, history)
    for what, logits in _spoiled(first.logits):
        rows = [replace(first, logits=logits), *others]
        for step, ids in enumerate(play("sampler", part, history.of(rows))):
            token_id = int(ids[0])
            if token_id != -1 and _is_finite(logits[step], token_id):
                yield f"row 0, step {step}: {what}, and it drew token {token_id}; give -1"
            if ids[1:].tolist() != expected[step][1:].tolist():
                yield f"step {step}: beside a row that {what}, other rows get {ids[1:].tolist()}"


def _spoiled(logits: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Logits that nothing can be drawn from, and what they have."""
    spoiled = []
    for what, value in (("has NaN", math.nan), ("has +inf", math.inf)):
        copy = logits.clone()
        copy[:, -1] = value
        spoiled.append((what, copy))
    return [("has no allowed token", torch.full_like(logits, -math.inf)), *spoiled]


def _is_finite(logits: torch.Tensor, token_id: int) -> bool:
    """Whether the loop takes the id for a token that was drawn."""
    return 0 <= token_id < len(logits) and bool(logits[token_id].isfinite())


def draws_by_probability(part: Any, history: History) -> Evidence:
    """Over many seeds and every step, each token comes as often as its softmax says.

    Of the history the logits of the first row are used. A chi-square test; since seeds are fixed,
    it gives the same verdict each time.
    """
    first = history.rows[0]
    rows = [Row(first.prompt, first.token_ids, first.logits, seed) for seed in range(_NUM_SEEDS)]
    rehearsal = Rehearsal("sampler", part, history.of(rows))
    for step in range(history.num_steps):
        probs = first.logits[step].double().softmax(-1)
        ids = rehearsal.go().clamp(min=0)
        counts = torch.bincount(ids, minlength=len(probs)).double()
        chance = _chance(counts, probs * len(rows))
        if chance < _BELIEVED:
            token_id = int((counts - probs * len(rows)).abs().argmax())
            yield (
                f"step {step}: of {len(rows)} draws {int(counts[token_id])} gave token {token_id}, "
                f"where {probs[token_id] * len(rows):.1f} are expected (chance {chance:.0e})"
            )


def _chance(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """How probable it is that counts deviate as far as these by chance; rare ones are pooled."""
    rare = expected < _LEAST_EXPECTED
    if bool((counts[expected == 0] > 0).any()):
        return 0.0
    counts = torch.cat((counts[~rare], counts[rare].sum()[None]))
    expected = torch.cat((expected[~rare], expected[rare].sum()[None]))
    counts, expected = counts[expected > 0], expected[expected > 0]
    freedom = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    if freedom == 0:
        return 1.0
    distance = ((counts - expected) ** 2 / expected).sum() / 2
    return float(torch.special.gammaincc(freedom, distance))


SAMPLER_LAWS: tuple[PartLaw, ...] = (
    PartLaw(runs_without_an_error, "sampler"),
    PartLaw(gives_one_id_a_row),
    PartLaw(draws_what_is_allowed),
    *shared_laws("sampler"),
    PartLaw(shows_what_cannot_be_drawn),
)
"""Every law of a sampler but the one of frequencies, which not every sampler is meant to keep."""

DRAWS_BY_PROBABILITY = PartLaw(draws_by_probability)
"""The law of frequencies."""
