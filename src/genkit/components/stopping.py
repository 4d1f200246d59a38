"""Stop criteria: each says which rows end with the token just appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator

from genkit.components.base import StopCriterion, check_token_ids
from genkit.core.run import Clock, Run
from genkit.core.state import GenerationState
from genkit.errors import InputError, UnsupportedError
from genkit.text.stream import Detokenizer

__all__ = ["Eos", "MaxLength", "MaxNewTokens", "StopStrings", "StopTokenIds", "TimeLimit"]


class Eos(StopCriterion):
    """Ends a row at a token that ends texts.

    By default every end token that the model's files name. A model that names none is never ended
    by it. To go on past the end token, leave the criterion out.
    """

    type: Literal["eos"] = "eos"

    token_ids: tuple[int, ...] | None = Field(
        None, min_length=1, description="end tokens in place of the model's own"
    )

    def bind(self, run: Run) -> _TokenMatch | None:
        """Compares with the model's end tokens; None where it has none."""
        token_ids = sorted(run.eos_token_ids) if self.token_ids is None else self.token_ids
        return _TokenMatch(self.name, token_ids, run) if token_ids else None


class StopTokenIds(StopCriterion):
    """Ends a row at one of the given tokens, whose text is kept unless it is a special token."""

    type: Literal["stop_token_ids"] = "stop_token_ids"

    token_ids: tuple[int, ...] = Field(min_length=1, description="ids that end a row")

    def bind(self, run: Run) -> _TokenMatch:
        """Compares with the given tokens, which the model must have."""
        return _TokenMatch(self.name, self.token_ids, run)


class _TokenMatch:
    """Is the last token one of these?"""

    def __init__(self, name: str, token_ids: Sequence[int], run: Run) -> None:
        try:
            check_token_ids(name, token_ids, run.vocab_size)
        except InputError as error:
            raise InputError(f"{error}. To end at no token, leave the part out") from None
        self.name = name
        self.token_ids = torch.tensor(list(token_ids), device=run.device)
        self.is_single = len(token_ids) == 1

    def __call__(self, state: GenerationState) -> torch.Tensor:
        if self.is_single:  # the usual case, several times faster
            return state.last_ids == self.token_ids
        return torch.isin(state.last_ids, self.token_ids)

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        generated = state.generated_row(i)
        return {"matched": int(generated[-1]), "position": len(generated) - 1}

    def reorder(self, indices: Sequence[int]) -> None:
        """It holds nothing of a row."""


class StopStrings(StopCriterion):
    """Ends a row when one of the given strings appears in its text.

    It is the generated text that is searched, not the prompt and not the ids, so that a string is
    found however it falls into tokens. Of several strings the one that is complete first counts, as
    if the text came letter by letter; of those that end at the same letter the longest. The text is
    cut where the string begins, and while streaming no letter is shown that may belong to one.
    """

    type: Literal["stop_strings"] = "stop_strings"

    strings: tuple[str, ...] = Field(min_length=1, description="strings that end a row")
    include: bool = Field(False, description="keep the string at the end of the text")

    @field_validator("strings", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("strings")
    @classmethod
    def _none_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("an empty string would end every row at once; leave it out")
        return value

    def bind(self, run: Run) -> _TextMatch:
        """The text of each row, as far as it is needed.

        Raises:
            UnsupportedError: there is no tokenizer.
        """
        if run.tokenizer is None:
            raise UnsupportedError(
                f"the stop criterion {self.name!r} reads text, and this model has no tokenizer; "
                "give the pipeline one, or use stop_token_ids"
            )
        hidden = run.tokenizer.special_token_ids | run.eos_token_ids
        texts = [_RowText(Detokenizer(run.tokenizer, hidden)) for _ in run.prompts]
        return _TextMatch(self, texts)


@dataclass
class _RowText:
    """The end of a row's text: as much as a string that is still to be completed can need."""

    stream: Detokenizer
    tail: str = ""
    offset: int = 0  # of the tail in the whole text, in characters

    def copy(self) -> _RowText:
        return _RowText(self.stream.copy(), self.tail, self.offset)


class _TextMatch:
    """Is one of the strings complete?"""

    def __init__(self, spec: StopStrings, texts: list[_RowText]) -> None:
        self.name = spec.name
        self.strings = spec.strings
        self.include = spec.include
        self.longest = max(map(len, spec.strings))
        self.texts = texts
        self.found: list[tuple[int, str] | None] = [None] * len(texts)

    def __call__(self, state: GenerationState) -> torch.Tensor:
        ids = state.last_ids.tolist()
        self.found = [self._feed(text, i) for text, i in zip(self.texts, ids, strict=True)]
        return torch.tensor([match is not None for match in self.found], device=state.device)

    def _feed(self, row: _RowText, token_id: int) -> tuple[int, str] | None:
        row.tail += row.stream.push(token_id)
        match = first_match(row.tail, self.strings)
        if match is not None:
            return row.offset + match[0], match[1]
        surplus = max(0, len(row.tail) - (self.longest - 1))
        row.tail, row.offset = row.tail[surplus:], row.offset + surplus
        return None

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        match = self.found[i]
        assert match is not None  # asked only for rows that this criterion has ended
        position, string = match
        text_end = position + (len(string) if self.include else 0)
        return {"matched": string, "position": position, "text_end": text_end}

    def held_back(self, text: str) -> int:
        """How many letters at the end of a text may be the beginning of a stop string."""
        return max(
            (
                size
                for string in self.strings
                for size in range(1, min(len(string), len(text) + 1))
                if text.endswith(string[:size])
            ),
            default=0,
        )

    def reorder(self, indices: Sequence[int]) -> None:
        self.texts = [self.texts[i].copy() for i in indices]
        self.found = [self.found[i] for i in indices]


def first_match(text: str, strings: Sequence[str]) -> tuple[int, str] | None:
    """Where the string begins that is complete first, and which it is."""
    starts = ((text.find(string), string) for string in strings)
    found = [(start + len(string), start, string) for start, string in starts if start >= 0]
    if not found:
        return None
    _, start, string = min(found)
    return start, string


class MaxNewTokens(StopCriterion):
    """Ends a row when it has generated that many tokens."""

    type: Literal["max_new_tokens"] = "max_new_tokens"
    finish_reason: ClassVar[str] = "length"

    limit: int = Field(ge=1, lt=2**31, description="the most tokens to generate, at least 1")

    def bound(self, num_prompt_tokens: int) -> int:
        """The prompt and the limit."""
        return num_prompt_tokens + self.limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True where the limit is reached, bool `[batch]`."""
        if state.most_generated < self.limit:
            return state.finished
        return state.num_generated >= self.limit


class MaxLength(StopCriterion):
    """Ends a row when prompt and answer together have that many tokens."""

    type: Literal["max_length"] = "max_length"
    finish_reason: ClassVar[str] = "length"

    limit: int = Field(
        ge=2, lt=2**31, description="the most tokens, prompt included; padding never counts"
    )

    def bound(self, num_prompt_tokens: int) -> int:
        """The limit itself."""
        return self.limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True where the limit is reached, bool `[batch]`."""
        return state.num_tokens >= self.limit


def with_limit(stop_criteria: Sequence[Any], max_new_tokens: int) -> tuple[Any, ...]:
    """The criteria with another limit of new tokens, in the place of the old one."""
    limit = MaxNewTokens(limit=max_new_tokens)
    if any(isinstance(criterion, MaxNewTokens) for criterion in stop_criteria):
        return tuple(limit if isinstance(c, MaxNewTokens) else c for c in stop_criteria)
    return (*stop_criteria, limit)


def check_lengths(stop_criteria: Sequence[Any]) -> None:
    """Refuse limits that contradict each other.

    Raises:
        UnsupportedError: one kind is given twice, or a limit of new tokens can never be reached.
    """
    new = [c.limit for c in stop_criteria if isinstance(c, MaxNewTokens)]
    total = [c.limit for c in stop_criteria if isinstance(c, MaxLength)]
    for name, limits in (("max_new_tokens", new), ("max_length", total)):
        if len(set(limits)) > 1:
            raise UnsupportedError(f"{name} is given twice, with {limits}; leave one of them")
    if new and total and min(new) >= min(total):
        raise UnsupportedError(
            f"max_new_tokens {min(new)} can never be reached below max_length {min(total)}, which "
            "counts the prompt too; drop one of the two"
        )


class TimeLimit(StopCriterion):
    """Ends all rows at the first token after that many seconds, counted from the first prefill on.

    Rows that are decoded one after the other share the time.
    """

    type: Literal["time_limit"] = "time_limit"
    finish_reason: ClassVar[str] = "time"

    seconds: float = Field(gt=0, description="seconds of wall-clock time")

    def bind(self, run: Run) -> _Deadline:
        """Looks at the run's clock."""
        return _Deadline(self.name, self.seconds, run.clock)


class _Deadline:
    finish_reason = "time"

    def __init__(self, name: str, seconds: float, clock: Clock) -> None:
        self.name = name
        self.seconds = seconds
        self.clock = clock

    def __call__(self, state: GenerationState) -> torch.Tensor:
        return state.finished if self.clock.seconds() < self.seconds else ~state.finished

    def reorder(self, indices: Sequence[int]) -> None:
        """It holds nothing of a row."""
