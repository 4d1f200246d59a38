"""Log-probabilities of generated tokens: before the processors, and after them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from genkit.core.result import Step
from genkit.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the vocabulary, and the logarithm of its probability; -inf: it is forbidden."""

    token_id: int
    text: str
    logprob: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data. JSON has no infinity: a forbidden token has None."""
        logprob = self.logprob if math.isfinite(self.logprob) else None
        return {"token_id": self.token_id, "text": self.text, "logprob": logprob}


@dataclass(frozen=True, slots=True)
class StepLogprobs:
    """A generated token, and what else there was to choose from.

    Attributes:
        token_id, text: the token.
        raw: its log-probability under the model alone, whatever processors there are.
        processed: under what the sampler was given.
        top_raw, top_processed: the most probable tokens of either kind, the most probable first;
            of equal ones, also of forbidden ones, the one that is more probable under the model,
            and then the lower id.
    """

    token_id: int
    text: str
    raw: float
    processed: float
    top_raw: tuple[TokenLogprob, ...] = ()
    top_processed: tuple[TokenLogprob, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "token_id": self.token_id,
            "text": self.text,
            "raw": self.raw if math.isfinite(self.raw) else None,
            "processed": self.processed,
            "top_raw": [token.to_dict() for token in self.top_raw],
            "top_processed": [token.to_dict() for token in self.top_processed],
        }


def logprobs_of(step: Step, num_top: int, tokenizer: Tokenizer | None) -> list[StepLogprobs]:
    """The log-probabilities of one step.

    Args:
        step: of some rows.
        num_top: how many of the most probable tokens are listed, at most the whole vocabulary.
        tokenizer: gives the texts; without one they are empty.

    Returns:
        One entry for each row of the step.
    """
    raw, processed = _log_softmax(step.raw_logits), _log_softmax(step.logits)
    chosen = step.next_ids.to(raw.device)[:, None]
    num_top = min(num_top, raw.shape[-1])
    columns = (
        _tokens(raw, chosen, tokenizer),
        _tokens(processed, chosen, tokenizer),
        _tokens(raw, _top(raw, raw, num_top), tokenizer),
        _tokens(processed, _top(processed, raw, num_top), tokenizer),
    )
    return [
        StepLogprobs(one.token_id, one.text, one.logprob, other.logprob, top_raw, top_processed)
        for (one,), (other,), top_raw, top_processed in zip(*columns, strict=True)
    ]


def _tokens(
    logprobs: torch.Tensor, ids: torch.Tensor, tokenizer: Tokenizer | None
) -> list[tuple[TokenLogprob, ...]]:
    """The tokens with these ids, int64 `[batch, n]`, of each row."""
    values = logprobs.gather(-1, ids)
    return [
        tuple(TokenLogprob(i, _text(tokenizer, i), v) for i, v in zip(*row, strict=True))
        for row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def _text(tokenizer: Tokenizer | None, token_id: int) -> str:
    return "" if tokenizer is None else tokenizer.token_text(token_id)


def _top(logprobs: torch.Tensor, raw: torch.Tensor, n: int) -> torch.Tensor:
    """The ids of the n most probable tokens of each row, int64 `[batch, n]`.

    Of equal ones the one with the larger raw log-probability is first, and then the lower id.
    """
    if n == 0:
        return torch.empty((len(raw), 0), dtype=torch.int64, device=raw.device)
    # Few tokens are sorted: those that reach the n-th largest value. Where fewer than n are
    # allowed, forbidden ones follow, the first by their raw values.
    reaches = logprobs >= logprobs.topk(n).values[:, -1:]
    is_found = reaches & ((logprobs > -math.inf) | (raw >= raw.topk(n).values[:, -1:]))
    rows = []
    for values, behind, found in zip(logprobs, raw, is_found, strict=True):
        ids = found.nonzero()[:, 0]
        for key in (behind, values):  # a stable sort by the last key leaves ties as they are
            ids = ids[key[ids].sort(descending=True, stable=True).indices]
        rows.append(ids[:n])
    return torch.stack(rows)


def _log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """Float64 `[batch, vocab]`."""
    return logits.log_softmax(-1, dtype=torch.float64)
