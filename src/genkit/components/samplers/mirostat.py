"""Draws that keep the surprise of the text near a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from genkit.components.base import Sampler
from genkit.components.ranking import beyond
from genkit.components.samplers.categorical import inverse_cdf
from genkit.components.samplers.draw_trail import DrawTrail
from genkit.core.run import Run
from genkit.core.state import GenerationState

_INT32 = 2.0**31


class Mirostat(Sampler):
    """Keeps as many tokens as bring the surprise near `tau` bits a token, and draws.

    The surprise of a token is ``-log2 p``. Each row has a bound mu on it, which begins at 2 tau.
    Tokens are kept by mu, one is drawn from those kept (as `categorical` draws), and with its
    probability p among them::

        mu <- mu - eta (-log2 p - tau)

    Version 2 keeps the tokens whose surprise is at most mu, and the most probable one in any case.
    Version 1 keeps the k most probable ones, ties by the lower id. It takes the distribution for
    Zipf's, estimates the exponent s from the m most probable tokens, and works out which k has the
    surprise mu; V is the size of the vocabulary::

        t_i = ln((i + 2) / (i + 1)),  b_i = ln(p_i / p_i+1),  s = sum(t_i b_i) / sum(t_i^2)
        k = ((s - 1) 2^mu / (1 - V^(1 - s)))^(1 / s),  rounded down, at least 1

    Forbidden tokens take no part in the estimate. mu of a row changes once for each token that
    comes as it was drawn. Filters before it make it see less of the distribution; engines run it
    with none but a temperature.

    It is llama.cpp's. There k of version 1 is a 32-bit integer: where a nearly flat row asks for
    2^31 tokens or more, one token is kept (`huge_k: keeps_one`). (Basu et al. 2021, who update mu
    with the probability before the cut.)

    Probabilities 1/2, 1/4, 1/8 and 1/8 have a surprise of 1, 2, 3 and 3 bits. A target of 1 bit
    makes mu = 2, so that two tokens are kept, with 2/3 and 1/3; a target of 0.4 leaves the first.
    Seed 4 has u = 0.92:

    >>> from genkit.testing import choose
    >>> logits = [0.0, -0.693, -1.386, -1.386]
    >>> [choose(Mirostat(tau=tau), logits, seed=4) for tau in (5, 1.01, 0.4)]
    [3, 1, 0]
    """

    type: Literal["mirostat"] = "mirostat"

    version: int = Field(2, ge=1, le=2, description="1: by an estimated rank; 2: by the surprise")
    tau: float = Field(5.0, ge=0, description="target surprise, in bits a token")
    eta: float = Field(
        0.1, ge=0, description="how far mu moves, as a part of the error; 0: mu stays at 2 tau"
    )
    num_estimated: int = Field(
        100, ge=2, description="version 1: m, how many of the most probable tokens are looked at"
    )
    huge_k: Literal["keeps_all", "keeps_one"] = Field(
        "keeps_all",
        description="version 1: what a k of 2^31 or more does, as nearly flat rows ask for it; "
        "`keeps_one` is what an engine does whose k has 32 bits",
    )

    def bind(self, run: Run) -> _Mirostat:
        """The sampler with the bound of each row."""
        return _Mirostat(self, run)


class _Mirostat:
    name = "mirostat"

    def __init__(self, spec: Mirostat, run: Run) -> None:
        self.spec = spec
        self.purpose = run.purpose
        self.log_vocab = math.log(max(2, run.vocab_size))  # of a single token k is 1 anyway
        first = torch.full((len(run), 1), 2 * spec.tau, dtype=torch.float64, device=run.device)
        self.mu = DrawTrail(first)

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        mu = self.mu.at(state)
        probs = self.truncated(logits, mu)
        ids = inverse_cdf(probs, state.rng.uniform(self.purpose))
        surprise = probs.gather(-1, ids.clamp(min=0).unsqueeze(-1)).log2().neg()
        self.mu.drawn(state, ids, mu - self.spec.eta * (surprise - self.spec.tau))
        return ids

    def truncated(self, logits: torch.Tensor, mu: torch.Tensor) -> torch.Tensor:
        """The distribution that is drawn from, float64 `[batch, vocab]`; mu is `[batch, 1]`."""
        probs = logits.softmax(-1, dtype=torch.float64)
        if self.spec.version == 1:
            kept = _largest(logits, self._rank(logits, mu))
        else:
            # In the precision of the logits, so that a token exactly on the bound is kept.
            kept = probs.to(logits.dtype).log2().neg() <= mu
            kept.scatter_(-1, logits.argmax(-1, keepdim=True), True)
        probs = probs.where(kept, 0.0)
        return probs / probs.sum(-1, keepdim=True)

    def _rank(self, logits: torch.Tensor, mu: torch.Tensor) -> torch.Tensor:
        """k of version 1, int64 `[batch, 1]`."""
        size = logits.shape[-1]
        top = logits.topk(min(self.spec.num_estimated, size)).values.double()
        allowed = top[:, 1:] > -math.inf
        gaps = (top[:, :-1] - top[:, 1:]).where(allowed, 0.0)
        places = torch.arange(1, top.shape[-1], device=top.device, dtype=torch.float64)
        steps = ((places + 1) / places).log() * allowed
        s = ((gaps * steps).sum(-1) / steps.square().sum(-1)).unsqueeze(-1)
        # In logarithms, so that nothing overflows. Where s is 1, the fraction is its limit.
        excess = s - 1
        fraction = excess / -torch.expm1(-excess * self.log_vocab)
        fraction = fraction.where(excess != 0, 1 / self.log_vocab)
        k = ((fraction.log() + mu * math.log(2)) / s).exp()
        # A single allowed token gives no estimate, and equal ones may not: all are kept.
        k = k.nan_to_num(math.inf, posinf=math.inf)
        if self.spec.huge_k == "keeps_one":
            k = k.where(k < _INT32, 1.0)
        return k.clamp(1, size).long()

    def reorder(self, indices: Sequence[int]) -> None:
        self.mu.reorder(indices)

    def rewind(self, n: int) -> None:
        self.mu.rewind(n)


def _largest(logits: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which tokens are the k largest of their row, bool `[batch, vocab]`; k is `[batch, 1]`."""
    # As far as any row reaches. A GPU is not asked, which would wait for it.
    most = int(k.max()) if logits.device.type == "cpu" else logits.shape[-1]
    return ~beyond(logits, logits.topk(most).values, k)
