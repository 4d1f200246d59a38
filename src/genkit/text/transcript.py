"""What has been generated so far, row by row: ids, text and how each row ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from genkit.core.result import Result, Step, Steps, Stop
from genkit.core.run import Run
from genkit.core.settings import Setting
from genkit.text.logprobs import StepLogprobs, logprobs_of
from genkit.text.stream import Detokenizer, detokenize

HeldBack = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text that is certain.

    Attributes:
        text: the piece; the pieces of a row joined are the text of its result.
        row: index of the row in the caller's batch.
        result: the row's result with its last chunk, otherwise None.
    """

    text: str
    row: int = 0
    result: Result | None = None

    def __str__(self) -> str:
        return self.text


@dataclass
class Transcript:
    """The ids of a run, as its steps bring them, and the results made of them.

    Args:
        run: what is generated for.
        num_top: how many of the most probable tokens of each step are taken down with their
            log-probabilities, besides those of the chosen one; None: nothing of the kind.
        settings: what the run is made with.
    """

    run: Run
    num_top: int | None = None
    settings: tuple[Setting, ...] = ()
    logprobs: list[list[StepLogprobs]] = field(init=False)
    token_ids: list[list[int]] = field(init=False)
    stops: list[Stop | None] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = [[] for _ in self.run.prompts]
        self.logprobs = [[] for _ in self.run.prompts]
        self.stops = [None] * len(self.run)

    @property
    def hidden(self) -> frozenset[int]:
        """Ids that give no text."""
        tokenizer = self.run.tokenizer
        special = tokenizer.special_token_ids if tokenizer is not None else frozenset[int]()
        return special | self.run.eos_token_ids

    def add(self, step: Step) -> None:
        """Take down one step."""
        for row, token_id, stop in step:
            self.token_ids[row].append(token_id)
            self.stops[row] = stop
        if self.num_top is not None:
            found = logprobs_of(step, self.num_top, self.run.tokenizer)
            for row, logprobs in zip(step.rows.tolist(), found, strict=True):
                self.logprobs[row].append(logprobs)

    def result(self, row: int, unfinished: str = "cancelled") -> Result:
        """The result of one row; `unfinished` is the finish reason if nothing has ended it."""
        stop = self.stops[row]
        return Result(
            text=self._text(row),
            token_ids=list(self.token_ids[row]),
            prompt_ids=list(self.run.prompts[row]),
            finish_reason=unfinished if stop is None else stop.finish_reason,
            stop=stop,
            seed=self.run.seeds[row],
            sample=self.run.samples[row],
            logprobs=None if self.num_top is None else list(self.logprobs[row]),
            settings=self.settings,
        )

    def results(self, unfinished: str = "cancelled") -> list[Result]:
        """The results of all rows, in the caller's order."""
        return [self.result(row, unfinished) for row in range(len(self.run))]

    def _text(self, row: int) -> str:
        if self.run.tokenizer is None:
            return ""
        text = detokenize(self.run.tokenizer, self.token_ids[row], self.hidden)
        stop = self.stops[row]
        return text if stop is None else text[: stop.text_end]


class TextStream:
    """The text of one row while it grows; shows nothing that may have to be taken back."""

    def __init__(self, stream: Detokenizer, held_back: Sequence[HeldBack]) -> None:
        self._stream = stream
        self._held_back = held_back
        self._pending = ""  # certain, but perhaps the beginning of a stop string
        self._num_shown = 0

    def push(self, token_id: int) -> str:
        """The text that can be shown after one more id."""
        self._pending += self._stream.push(token_id)
        held = max((count(self._pending) for count in self._held_back), default=0)
        return self._show(len(self._pending) - held)

    def finish(self, token_id: int, stop: Stop) -> str:
        """The rest of the text, after the id that ended the row."""
        self._pending += self._stream.push(token_id) + self._stream.flush()
        if stop.text_end is None:
            return self._show(len(self._pending))
        return self._show(stop.text_end - self._num_shown)

    def _show(self, size: int) -> str:
        piece, self._pending = self._pending[:size], self._pending[size:]
        self._num_shown += len(piece)
        return piece


def chunks(
    steps: Steps, transcript: Transcript, held_back: Sequence[HeldBack]
) -> Generator[Chunk, None, None]:
    """The text of some steps, piece by piece; `transcript` has taken each step down before."""
    tokenizer = transcript.run.tokenizer
    assert tokenizer is not None  # the pipeline refuses to stream text without one
    texts = [
        TextStream(Detokenizer(tokenizer, transcript.hidden), held_back)
        for _ in transcript.run.prompts
    ]
    with closing(steps):
        for step in steps:
            for row, token_id, stop in step:
                if stop is not None:
                    piece = texts[row].finish(token_id, stop)
                    yield Chunk(piece, row, transcript.result(row))
                elif piece := texts[row].push(token_id):
                    yield Chunk(piece, row)
