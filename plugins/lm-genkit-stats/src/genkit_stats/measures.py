"""What the logits of a step say about the tokens that were chosen from them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from genkit import Step


class Measures(NamedTuple):
    """One token in its distribution.

    Attributes:
        entropy: of the distribution, in nats; None where it has none, as with NaN among the logits.
        rank: how many tokens come before it in the order of probability, equal ones in that of ids.
        logprob: its log-probability; None where it is forbidden, which JSON has no number for.
    """

    entropy: float | None
    rank: int
    logprob: float | None


def measures(step: Step) -> list[dict[str, Any]]:
    """The measures of each row of a step, processed as they are called and raw with `raw_`."""
    processed = _measured(step.logits, step.next_ids)
    # Without processors both are one.
    same = step.raw_logits is step.logits
    raw = processed if same else _measured(step.raw_logits, step.next_ids)
    return [
        {**one._asdict(), **{f"raw_{name}": value for name, value in other._asdict().items()}}
        for one, other in zip(processed, raw, strict=True)
    ]


def _measured(logits: torch.Tensor, ids: torch.Tensor) -> list[Measures]:
    ids = ids.to(logits.device)[:, None]
    logprobs = logits.log_softmax(-1, dtype=torch.float64)
    entropy = torch.special.entr(logprobs.exp()).sum(-1)
    chosen = logits.gather(-1, ids)
    lower = torch.arange(logits.shape[-1], device=logits.device) < ids
    rank = ((logits > chosen) | ((logits == chosen) & lower)).sum(-1)
    # One transfer from the device.
    columns = torch.stack((entropy, rank.double(), logprobs.gather(-1, ids)[:, 0])).tolist()
    return [
        Measures(_finite(nats), int(place), _finite(logprob))
        for nats, place, logprob in zip(*columns, strict=True)
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
