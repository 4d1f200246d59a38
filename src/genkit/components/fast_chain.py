"""Truncations and the draw on the few tokens that can still be chosen.

A truncation such as `top_k` looks at a whole vocabulary to keep a handful of tokens, and what comes
after it would look at the whole vocabulary again. Here the first truncation of a run of them finds
its candidates without sorting a row, the parts after it get the candidates alone, and the sampler
draws among them. The plain chain is the twin: what cannot be decided on candidates it computes, and
the tokens are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from genkit.components.base import Component
from genkit.components.candidates import Candidates, Rows
from genkit.components.ranked import ROUNDING, Ranked
from genkit.components.samplers.categorical import InverseCdf
from genkit.core.binding import BoundParts
from genkit.core.contracts import LogitsProcessor, Sampler
from genkit.core.guard import unguarded
from genkit.core.state import GenerationState


def collapsed(bound: BoundParts) -> BoundParts:
    """The parts of a run, with the truncations at the end of the chain and the draw in one.

    As they are where the sampler is another than `categorical`, where no truncation that can find
    candidates comes before it, and on another device than the CPU.
    """
    if type(unguarded(bound.sampler)) is not InverseCdf or bound.run.device.type != "cpu":
        return bound
    chain = [unguarded(processor) for processor in bound.processors]
    begin = len(chain)
    while begin and isinstance(chain[begin - 1], Component) and chain[begin - 1].acts_on_allowed:
        begin -= 1
    first = next((i for i in range(begin, len(chain)) if _narrows(chain[i])), None)
    if first is None:
        return bound
    divisor = getattr(chain[first - 1], "divisor", None) if first > begin else None
    before = first if divisor is None else first - 1  # a temperature is for candidates only, too
    truncations = FastTruncations(chain[first:], bound.processors[before:], divisor or 1.0)
    return replace(
        bound,
        processors=[*bound.processors[:before], truncations],
        sampler=FastDraw(truncations, bound.sampler),
    )


class FastTruncations:
    """Truncations one after the other, on candidates that the first of them finds.

    Args:
        parts: the truncations.
        plain: the same ones, as the loop would call them, and the temperature before them.
        divisor: that temperature, or 1.
    """

    name = "fast_truncations"

    def __init__(
        self, parts: Sequence[Any], plain: Sequence[LogitsProcessor], divisor: float = 1.0
    ) -> None:
        # Those that keep the first tokens of one order need it once; the rest get what is left.
        num_ranked = next((i for i, p in enumerate(parts) if not _narrows(p)), len(parts))
        self._ranked, self._others = parts[:num_ranked], parts[num_ranked:]
        # The second one may find fewer candidates for both: the first then keeps all of these, or
        # some. A third one may not, since the second needs to know what the first has kept.
        quick = (part for part in self._ranked[:2] if not getattr(part, "needs_total", False))
        self._finder = next(quick, parts[0])
        self._plain = plain
        self._divisor = divisor
        self.candidates: Candidates | None = None
        self.given: torch.Tensor | None = None

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self.candidates = self._found(state, logits.detach().contiguous())
        if self.candidates is None:  # it takes whole rows to know
            out = logits
            for processor in self._plain:
                out = processor(state, out)
        else:
            out = self.candidates.spread(logits.shape[1])
        self.given = out
        return out

    def _found(self, state: GenerationState, logits: torch.Tensor) -> Candidates | None:
        rows = Rows(logits, self._divisor)
        if not np.isfinite(rows.largest).all():
            return None
        found: Candidates | None = self._finder.narrow(rows)
        if found is None:
            return None
        ranked = Ranked(rows, found)
        if not all(part.shorten(ranked) for part in self._ranked):
            return None
        found = ranked.kept()
        if self._others:
            kept = torch.from_numpy(found.logits)
            for part in self._others:
                kept = part(state, kept)
            found = Candidates(found.ids, kept.numpy(), found.counts)
        return found

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row from step to step."""
        self.candidates = self.given = None


class FastDraw:
    """Draws among the candidates, as `categorical` draws among all tokens.

    Args:
        truncations: they have the candidates.
        plain: the sampler itself, for rows without candidates.
    """

    name = "categorical"

    def __init__(self, truncations: FastTruncations, plain: Sampler) -> None:
        self._truncations = truncations
        self._plain = plain
        self._purpose = unguarded(plain).purpose

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        found = self._truncations.candidates
        if found is None or logits is not self._truncations.given:
            return self._plain(state, logits)
        drawn = _draw(found, state.rng.uniform(self._purpose))
        return self._plain(state, logits) if drawn is None else drawn

    def reorder(self, indices: object) -> None:
        """It holds nothing of a row."""


def _draw(found: Candidates, uniform: torch.Tensor) -> torch.Tensor | None:
    """The id drawn for each row, `[batch]`; None where one is too close to call."""
    logits = found.logits.astype(np.float64)
    running = np.exp(logits - logits.max(-1, keepdims=True)).cumsum(-1)
    total = running[:, -1:]
    ahead = running - uniform.numpy()[:, None] * total
    if not bool((np.abs(ahead) > ROUNDING * total).all()):
        return None
    return torch.from_numpy(found.ids[np.arange(len(ahead)), (ahead < 0).sum(-1)])


def _narrows(part: Any) -> bool:
    return hasattr(part, "narrow")
