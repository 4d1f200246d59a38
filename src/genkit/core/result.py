"""What a run gives: steps while it goes on, results when it ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from genkit.core.settings import Setting


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a row ended.

    Attributes:
        criterion: the name of the stop criterion.
        matched: what it met: a token id, a string, or None where there is nothing to name.
        position: for strings the offset in the uncut text, in characters; for ids the index in the
            generated ids; otherwise None.
        text_end: where the text is cut, in characters; None: it is not.
        finish_reason: the class of the reason: `stop`, `length`, `time`, `cancelled`, ...
    """

    criterion: str
    matched: Any = None
    position: int | None = None
    text_end: int | None = None
    finish_reason: str = "stop"


@dataclass(slots=True, eq=False)  # not frozen: that would take twice as long to make
class Step:
    """One token for each unfinished row.

    Attributes:
        rows: index of each row in the caller's batch, int64 `[batch]`, on the host.
        next_ids: the ids just chosen, int64 `[batch]`, on the host.
        raw_logits: what the model gave, `[batch, vocab]`, on the model's device; -inf for ids that
            the tokenizer does not have.
        logits: what the sampler got, `[batch, vocab]`, on the model's device.
        stops: why each row ends with this step; None for a row that goes on.
    """

    rows: torch.Tensor
    next_ids: torch.Tensor
    raw_logits: torch.Tensor
    logits: torch.Tensor
    stops: tuple[Stop | None, ...]

    def __iter__(self) -> Iterator[tuple[int, int, Stop | None]]:
        """(row, id, why the row ends or None) for each row of the step."""
        return zip(self.rows.tolist(), self.next_ids.tolist(), self.stops, strict=True)

    @property
    def finished(self) -> torch.Tensor:
        """Which rows end with this step, bool `[batch]`, on the host."""
        return torch.tensor([stop is not None for stop in self.stops])


Steps = Generator[Step, None, None]
"""A run as it goes on; closing it ends the run and releases its cache."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one prompt. It holds ids, text and numbers only, no cache and no logits.

    Two are equal if the same was generated, whatever the settings.

    Attributes:
        text: the answer, without special tokens, cut where a stop string began.
        token_ids: the generated ids, the one that ended the row included.
        prompt_ids: the ids the model was given.
        finish_reason: `stop`, `length`, `time`, `cancelled` (interrupted), `error`.
        stop: the criterion that ended the row, None if none did.
        seed, sample: what repeats this result exactly.
        logprobs: where they were asked for, one entry for each generated id: its log-probability
            and those of the most probable tokens, raw and processed; see `text.logprobs`.
        settings: every option of every part that was used, and who says its value.
    """

    text: str
    token_ids: list[int]
    prompt_ids: list[int] = field(repr=False)
    finish_reason: str
    stop: Stop | None
    seed: int
    sample: int = 0
    logprobs: Any = None
    settings: tuple[Setting, ...] = field(default=(), repr=False, compare=False)

    @property
    def num_prompt_tokens(self) -> int:
        """Number of ids of the prompt."""
        return len(self.prompt_ids)

    @property
    def num_generated_tokens(self) -> int:
        """Number of generated ids, the one that ended the row included."""
        return len(self.token_ids)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, with the keys of the command line's JSON; no settings."""
        stop = self.stop
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "prompt_ids": self.prompt_ids,
            "finish_reason": self.finish_reason,
            "stop": stop
            and {"criterion": stop.criterion, "matched": stop.matched, "position": stop.position},
            "seed": self.seed,
            "sample": self.sample,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_generated_tokens": self.num_generated_tokens,
            "logprobs": self.logprobs and [entry.to_dict() for entry in self.logprobs],
        }
