"""What may happen to the rows of a run: tokens come and are taken back, rows leave and are copied.

`follow` leads a bound part through a journey and says, after each event, what the rows are then, so
that what it remembers can be compared with a computation from the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from genkit.core.run import Run
from genkit.core.state import GenerationState
from vectors import rows_of

MOST_IDS = 6


@dataclass(frozen=True)
class Journey:
    """Prompts and events.

    An event is a tuple: ``("append", blocks)`` with the new ids of up to three rows, which others
    take in turn; ``("repeat", period, n)``, n tokens equal to those a period before; ``("reorder",
    places)``; ``("rewind", n, unseen)``, where besides n tokens some are taken back that have come
    since the part was asked.
    """

    prompts: list[list[int]]
    events: list[tuple[Any, ...]]


@st.composite
def journeys(draw: st.DrawFn) -> Journey:
    """Random, periodic and constant texts over one to `MOST_IDS` ids, in one to three rows."""
    ids = st.integers(0, draw(st.integers(0, MOST_IDS - 1)))
    prompt = st.builds(
        lambda once, times: once * times,
        st.lists(ids, max_size=6),
        st.integers(1, 3),
    )
    size = draw(st.integers(1, 3))
    blocks = st.lists(st.lists(ids, min_size=size, max_size=size), min_size=3, max_size=3)
    events = st.one_of(
        st.tuples(st.just("append"), blocks),
        st.tuples(st.just("repeat"), st.integers(1, 3), st.integers(1, 5)),
        st.tuples(st.just("reorder"), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
        st.tuples(st.just("rewind"), st.integers(0, 8), st.integers(0, 2)),
    )
    prompts = draw(st.lists(prompt, min_size=1, max_size=3))
    return Journey(prompts, draw(st.lists(events, max_size=8)))


def follow(
    make: Any, journey: Journey, vocab_size: int = MOST_IDS
) -> Iterator[tuple[Any, GenerationState, list[list[int]], list[list[int]]]]:
    """The bound part, the state, and prompt and answer of each row, after each event.

    Args:
        make: ``(run) -> part with reorder and rewind``.
        journey: what happens.
        vocab_size: of the run.
    """
    prompts = journey.prompts
    answers: list[list[int]] = [[] for _ in prompts]
    width = max(1, *map(len, prompts))

    def state() -> GenerationState:
        longest = [0] * width  # a row that keeps the width when the longest has left
        rows = [*prompts, longest], [*answers, [0] * len(answers[0])]
        found = rows_of(*rows, vocab_size)[1]
        found.reorder(range(len(prompts)))
        return found

    bound = make(run_of(*prompts, vocab_size=vocab_size))
    yield bound, state(), prompts, answers
    for event in journey.events:
        match event:
            case ("append", blocks):
                answers = [[*answer, *blocks[i % 3]] for i, answer in enumerate(answers)]
            case ("repeat", period, n):
                for _ in range(n):
                    answers = [
                        [*answer, ([0] * period + prompt + answer)[-period]]
                        for prompt, answer in zip(prompts, answers, strict=True)
                    ]
            case ("reorder", places):
                indices = [place % len(prompts) for place in places]
                prompts = [prompts[i] for i in indices]
                answers = [answers[i] for i in indices]
                bound.reorder(indices)
            case ("rewind", n, unseen):
                n = min(n, len(answers[0]))
                answers = [answer[: len(answer) - n] for answer in answers]
                bound.rewind(n + unseen)
        yield bound, state(), prompts, answers


def run_of(*prompts: list[int], vocab_size: int = MOST_IDS, tokenizer: Any = None) -> Run:
    """A run with these prompts."""
    return rows_of(prompts, [[] for _ in prompts], vocab_size, tokenizer=tokenizer)[0]
