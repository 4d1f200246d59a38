"""Tokens that would continue a repetition become less likely, the longer it is."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor, check_token_ids
from genkit.components.breakers import Breakers, breaker_sequences
from genkit.components.history import RowMemories
from genkit.components.strings import Strings
from genkit.components.suffix_automaton import SuffixAutomaton
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import UnsupportedError

_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_LOG = np.float32(88.7228391)


class Dry(LogitsProcessor):
    """Makes tokens less likely that would continue a repetition, the more the longer it is.

    For a token c let r be the largest number for which the last r tokens came earlier and were
    followed by c. If r is at least `allowed_length`, ``l' = l - multiplier * base ** (r -
    allowed_length)``; the exponent is bounded so that the power stays within float32 (158 for base
    1.75). The multiplier 0 is neutral, and one below 0 rewards repetition.

    Repetitions are not followed across a breaker: r is at most the number of tokens after the last
    one, and a token that is a breaker by itself is never penalised. A string of `breakers` stands
    for all sequences of tokens whose text holds it: tokens in which it stands, and tokens that end
    with its beginning together with the tokens of the rest, at most 20. `breaker_ids` are sequences
    as they are.

    Prompt and answer count, or only the last `window` tokens of them, padding never. Breakers that
    are strings need a tokenizer, whose tokens are all read once. (p-e-w 2024, pull request 5677 of
    text-generation-webui; arithmetic and breakers as in llama.cpp.)

    >>> from genkit.testing import process
    >>> part = Dry(multiplier=1.0, base=2.0, allowed_length=1, breakers=[])
    >>> process(part, [9.0, 9.0, 9.0, 9.0], prompt=[0, 1, 2, 3, 1, 0, 1])
    [8.0, 9.0, 7.0, 9.0]
    """

    type: Literal["dry"] = "dry"

    multiplier: float = Field(
        ge=-1e6, le=1e6, description="the penalty where r is the allowed length; 0 is neutral"
    )
    base: float = Field(
        1.75, ge=1, le=1e30, description="what each further token multiplies it by, at least 1"
    )
    allowed_length: int = Field(
        2, ge=0, description="the shortest r that is penalised, in tokens before the new one"
    )
    window: int | None = Field(
        None, ge=0, description="only the last so many tokens; null: all of them"
    )
    breakers: Strings = Field(
        ("\n", ":", '"', "*"), description="strings across which nothing is followed"
    )
    breaker_ids: tuple[tuple[int, ...], ...] = Field(
        (), description="sequences of ids across which nothing is followed"
    )

    @field_validator("breakers", "breaker_ids")
    @classmethod
    def _none_empty(cls, value: Any) -> Any:
        if any(len(each) == 0 for each in value):
            raise ValueError("an empty breaker would be everywhere; leave it out")
        return value

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing: no text is long enough for a repetition to count."""
        is_short = self.window is not None and self.window <= self.allowed_length
        return self.multiplier == 0 or is_short

    def bind(self, run: Run) -> _Repetitions | None:
        """The text so far in a form that answers in constant time.

        Raises:
            UnsupportedError: there are strings and no tokenizer.
            InputError: the model does not have an id of `breaker_ids`.
        """
        if self.is_neutral:
            return None
        return _Repetitions(self, self._breakers(run), run)

    def _breakers(self, run: Run) -> Breakers:
        """All breakers, as ids."""
        for sequence in self.breaker_ids:
            check_token_ids("breaker_ids", sequence, run.vocab_size)
        if not self.breakers:
            return Breakers(self.breaker_ids)
        if run.tokenizer is None:
            raise UnsupportedError(
                "the logits processor 'dry' finds its breakers by their text, and this model has "
                "no tokenizer; give the pipeline one, or say `breakers: []`"
            )
        return Breakers((*self.breaker_ids, *breaker_sequences(run.tokenizer, self.breakers)))


class _Repetitions:
    """The penalties of the tokens that would continue a repetition."""

    name = "dry"

    def __init__(self, spec: Dry, breakers: Breakers, run: Run) -> None:
        self._allowed_length, self._window = spec.allowed_length, spec.window
        # llama.cpp calculates with options in float32, and so does this.
        self._multiplier = float(np.float32(spec.multiplier))
        self._base = float(np.float32(spec.base))
        self._most = _largest_exponent(spec.base)
        self._breakers = breakers
        longest = max(run.limits) if self._most is None else spec.allowed_length + self._most
        if spec.window is not None:
            longest = min(longest, spec.window - 1)
        # Without a window the places matter only for the token that nothing stands before.
        with_places = spec.window is not None or spec.allowed_length == 0
        memories = [
            _Text(SuffixAutomaton(spec.allowed_length, longest, with_places=with_places), breakers)
            for _ in run.prompts
        ]
        self._memories = RowMemories(memories)
        self.reorder = self._memories.reorder
        self.rewind = self._memories.rewind

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        self._memories.look(state)
        places: list[int] = []
        penalties: list[float] = []
        for i, text in enumerate(self._memories.rows):
            for token_id, length in text.repetitions(self._window).items():
                if not self._breakers.has(token_id):
                    places.append(i * logits.shape[1] + token_id)
                    penalties.append(self._penalty(length))
        if not places:
            return logits
        out = logits.clone(memory_format=torch.contiguous_format)
        given = torch.tensor(penalties, dtype=logits.dtype, device=logits.device)
        out.view(-1).index_add_(0, torch.tensor(places, device=logits.device), -given)
        return out

    def _penalty(self, length: int) -> float:
        exponent = length - self._allowed_length
        if self._most is not None:
            exponent = min(exponent, self._most)
        penalty = self._multiplier * self._base**exponent
        return max(-_LARGEST, min(penalty, _LARGEST))


def _largest_exponent(base: float) -> int | None:
    """The largest exponent with which the power stays within float32.

    It is 0 for the base 1, where no exponent matters; None for one so little above that none is
    too large.
    """
    if np.float32(base) > np.float32(1.000001):
        return int(_LARGEST_LOG / np.log(np.float32(base)))
    return 0 if base == 1 else None


class _Text:
    """The text of one row: what followed what, and the last breaker.

    Args:
        automaton: of an empty text.
        breakers: sequences across which nothing is followed.
    """

    def __init__(self, automaton: SuffixAutomaton, breakers: Breakers) -> None:
        self._automaton = automaton
        self._breakers = breakers
        self._ids: list[int] = []
        # After each token: the begin and the end of the breaker that begins last. Of those that
        # begin there, the longest.
        self._last_breakers = [(-1, 0)]

    def push(self, token_id: int) -> None:
        self._automaton.push(token_id)
        self._ids.append(token_id)
        self._last_breakers.append(self._last_breaker())

    def pop(self) -> None:
        self._automaton.pop()
        self._ids.pop()
        self._last_breakers.pop()

    def copy(self) -> Self:
        other = type(self)(self._automaton.copy(), self._breakers)
        other._ids = self._ids.copy()
        other._last_breakers = self._last_breakers.copy()
        return other

    def repetitions(self, window: int | None) -> dict[int, int]:
        """For each token that would continue one how long it is; only `window` tokens count."""
        size = len(self._ids)
        since = 0 if window is None else max(0, size - window)
        begin, end = self._last_breakers[-1]
        return self._automaton.followers(size - end if begin >= since else size, since)

    def _last_breaker(self) -> tuple[int, int]:
        size = len(self._ids)
        new = size - self._breakers.size_at_end(self._ids)
        begin, end = self._last_breakers[-1]
        return (new, size) if begin <= new < size else (begin, end)
