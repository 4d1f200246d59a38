"""How long a run takes, and what there is of it when it ends early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genkit.core.result import Result, Step
    from genkit.core.run import Run


class Watch:
    """An observer with a clock.

    Attributes:
        results: what the run gave, complete or not; empty until it has ended.
    """

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._began: float | None = None
        self._first: float | None = None
        self._last = 0.0
        self._num_decoded = 0

    def genkit_run_started(self, run: Run) -> None:
        """The clock starts."""
        self._began = time.perf_counter()

    def genkit_step(self, run: Run, step: Step) -> None:
        """One more token a row. The first step is the prefill."""
        self._last = time.perf_counter()
        if self._first is None:
            self._first = self._last
        else:
            self._num_decoded += len(step.next_ids)

    def genkit_run_finished(self, run: Run, results: Sequence[Result]) -> None:
        """It came to its end, or nobody asked for more."""
        self.results = list(results)

    def genkit_run_failed(self, run: Run, error: BaseException) -> None:
        """It failed or was interrupted."""
        self.results = list(getattr(error, "partial_results", []))

    @property
    def prefill_seconds(self) -> float | None:
        """Until the first token was there; None if there was none."""
        if self._began is None or self._first is None:
            return None
        return self._first - self._began

    @property
    def decode_seconds(self) -> float:
        """From the first token to the last."""
        return 0.0 if self._first is None else self._last - self._first

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first, by the time they took; None if there were none."""
        if not self._num_decoded or not self.decode_seconds:
            return None
        return self._num_decoded / self.decode_seconds

    def to_dict(self) -> dict[str, Any]:
        """The timing, as in the JSON of commands."""
        return {
            "prefill_seconds": self.prefill_seconds,
            "decode_seconds": self.decode_seconds,
            "tokens_per_second": self.tokens_per_second,
        }


def summary(result: Result, watch: Watch | None = None) -> str:
    """One line about a result: how long, how fast, why it ended, and the seed that repeats it."""
    reason = result.finish_reason
    if result.stop is not None and result.stop.criterion != reason:
        reason += f" ({result.stop.criterion})"
    speed = watch.tokens_per_second if watch is not None else None
    parts = [
        f"{result.num_prompt_tokens} + {result.num_generated_tokens} tokens",
        f"{speed:.1f} tokens/s" if speed else "",
        reason,
        f"seed {result.seed}",
    ]
    return ", ".join(filter(None, parts))
