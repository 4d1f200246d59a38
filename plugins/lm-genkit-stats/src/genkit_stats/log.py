"""The lines that one run adds to a file."""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genkit import Result, Step
    from genkit.core.run import Run


class Log:
    """Writes the tokens of one run, a JSON object a line.

    Each object has

    - `run`: a random name of the run, the same in all of its lines,
    - `row`, `step`, `token_id`: the row of the call, and its token with this index,
    - `entropy`, `rank`, `logprob`: of the distribution that the sampler got, see `measures`,
    - `raw_entropy`, `raw_rank`, `raw_logprob`: of what the model gave,
    - `seconds`: since the step before, or since the run began, without the time that measuring and
      writing took,
    - `elapsed`: their sum so far.

    Args:
        path: the file, which is made if it is missing.
        run: the run.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str, run: Run) -> None:
        self.path = path
        self.run = run
        self._name = secrets.token_hex(4)
        self._num_steps: Counter[int] = Counter()
        self._elapsed = 0.0
        # Without a buffer, the lines of a step are one write at the end of the file: those of other
        # threads and processes come before or after them.
        self._file = open(path, "ab", buffering=0, opener=_opened)  # noqa: SIM115
        if _ends_within_a_line(path):  # of a run that was killed while it wrote
            self._file.write(b"\n")
        self._last = time.perf_counter()

    def step(self, step: Step) -> None:
        """Write the lines of a step.

        Raises:
            OSError: they could not be written.
        """
        seconds = time.perf_counter() - self._last
        self._elapsed += seconds
        from genkit_stats.measures import measures  # torch is there by now

        lines = [
            json.dumps(self._record(row, token_id, measured, seconds), allow_nan=False) + "\n"
            for (row, token_id, _), measured in zip(step, measures(step), strict=True)
        ]
        data = "".join(lines).encode()
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._last = time.perf_counter()

    def _record(
        self, row: int, token_id: int, measured: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        index = self._num_steps[row]
        self._num_steps[row] += 1
        return {
            "run": self._name,
            "row": row,
            "step": index,
            "token_id": token_id,
            **measured,
            "seconds": round(seconds, 6),
            "elapsed": round(self._elapsed, 6),
        }

    def end(self, results: list[Result], error: BaseException | None) -> None:
        """Close the file.

        Raises:
            OSError: what was written is lost.
        """
        self.close()

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: what was written is lost.
        """
        self._file.close()


def _opened(path: str, flags: int) -> int:
    # A pipe that nobody reads is then an error, and not waited for.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def _ends_within_a_line(path: str) -> bool:
    if not os.path.isfile(path) or not os.path.getsize(path):
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"  # and no more: others may be writing
