"""How probable a model finds a text, token by token.

By the chain rule the probability of a text is the product of the probabilities of its tokens, each
given those before it. Nothing stands before the first one, so it has none and does not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from genkit.components.base import check_token_ids
from genkit.core.contracts import Cache, Model, name_of
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import ContextLengthError, InputError, ModelOutputError, UnsupportedError
from genkit.text.tokenizer import Tokenizer

__all__ = ["Score", "ScoredToken", "score"]

_BLOCK = 128
"""How many positions are held as logits at once: memory stays bounded, however long the text is."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One token, and its log-probability after all tokens before it; None for the first."""

    token_id: int
    text: str
    logprob: float | None


@dataclass(frozen=True, slots=True)
class Score:
    """The log-probability of a text.

    Attributes:
        tokens: every token of the text.
        logprob: the sum over all tokens but the first.
        perplexity: exp of minus their mean; None for a text of one token, which has no mean.
    """

    tokens: tuple[ScoredToken, ...]
    logprob: float
    perplexity: float | None

    @property
    def num_tokens(self) -> int:
        """Number of tokens, the first included."""
        return len(self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """The score as plain data. JSON has no infinity: a text of probability 0 gives None."""
        return {
            "tokens": [
                {"token_id": t.token_id, "text": t.text, "logprob": _finite(t.logprob)}
                for t in self.tokens
            ],
            "logprob": _finite(self.logprob),
            "perplexity": _finite(self.perplexity),
            "num_tokens": self.num_tokens,
        }


def score(model: Model, text: str | Sequence[int], tokenizer: Tokenizer | None = None) -> Score:
    """The log-probability of a text under a model.

    Args:
        model: it must give the logits of more than the last position.
        text: the text, or its token ids.
        tokenizer: by default the model's own. A text is encoded as the tokenizer does it, with the
            begin token if it adds one.

    Raises:
        InputError: the text has no token, or does not fit into the model's context.
        UnsupportedError: the model gives the logits of the last position only.
        ModelOutputError: the model gave NaN.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    token_ids = _encode(text, tokenizer)
    _check(model, token_ids)
    with torch.no_grad():
        logprobs = _logprobs(model, token_ids)
    tokens = tuple(
        ScoredToken(token_id, _text(tokenizer, token_id), logprob)
        for token_id, logprob in zip(token_ids, [None, *logprobs], strict=True)
    )
    total = math.fsum(logprobs)
    return Score(tokens, total, _perplexity(total, len(logprobs)))


def _encode(text: str | Sequence[int], tokenizer: Tokenizer | None) -> list[int]:
    if not isinstance(text, str):
        return list(text)
    if tokenizer is None:
        raise InputError("this model has no tokenizer, so a text is given as a list of token ids")
    return tokenizer.encode(text)


def _check(model: Model, token_ids: Sequence[int]) -> None:
    if not token_ids:
        raise InputError("the text is empty: there is no token to score")
    check_token_ids("text", token_ids, model.vocab_size)
    longest = model.context_length
    if longest is not None and len(token_ids) > longest:
        raise ContextLengthError(
            f"the text has {len(token_ids)} tokens and the model's context holds {longest}; "
            "score it in parts"
        )
    if not hasattr(model, "last"):
        raise UnsupportedError(
            f"scoring needs the logits of every position, and the model {name_of(model)!r} gives "
            "those of the last one only (it has no `last`)"
        )


def _logprobs(model: Model, token_ids: Sequence[int]) -> list[float]:
    """The log-probability of every token but the first. The last one need not be fed."""
    rng = RowRandom([0], [0], model.device)
    state = GenerationState([token_ids], [len(token_ids)], rng, device=model.device)
    cache = model.new_cache(state)
    logprobs: list[float] = []
    while len(logprobs) < len(token_ids) - 1:
        begin = len(logprobs)
        end = min(begin + _width(cache), len(token_ids) - 1)
        logprobs += _piece(model, cache, state.token_ids[:, begin : end + 1])
    return logprobs


def _width(cache: Cache) -> int:
    """How many tokens are fed at once: many, unless the cache takes only one after a past."""
    return _BLOCK if "block" in cache.supports else 1


def _piece(model: Any, cache: Cache, columns: torch.Tensor) -> list[float]:
    """Feed all but the last of some columns; the log-probabilities of all but the first."""
    begin, count = cache.length, columns.shape[1] - 1
    logits = model.last(columns[:, :-1], cache, count)[0]
    if bool(logits.isnan().any()):
        raise ModelOutputError(f"the model gave NaN between the tokens {begin} and {begin + count}")
    logprobs = torch.log_softmax(logits.to(torch.float64), -1)
    chosen: list[float] = logprobs.gather(-1, columns[0, 1:, None])[:, 0].tolist()
    return chosen


def _perplexity(total: float, count: int) -> float | None:
    if not count:
        return None
    try:
        return math.exp(-total / count)
    except OverflowError:
        return math.inf


def _text(tokenizer: Tokenizer | None, token_id: int) -> str:
    return "" if tokenizer is None else tokenizer.token_text(token_id)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
