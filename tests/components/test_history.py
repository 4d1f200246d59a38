"""What parts remember, against a computation from the definition, whatever happens to the rows."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genkit.components.history import RowMemories
from genkit.components.ngrams import NGrams
from genkit.components.suffix_automaton import SuffixAutomaton
from genkit.components.token_counts import CountedText, DeviceCounts, HostCounts
from journeys import MOST_IDS, Journey, follow, journeys

SCOPES = st.sampled_from(["all", "output", "prompt"])
WINDOWS = st.none() | st.integers(1, 12)
WIDTHS = st.sampled_from([MOST_IDS, MOST_IDS - 2])  # some tokens may have no logit


def in_scope(scope: str, window: int | None, prompt: list[int], answer: list[int]) -> list[int]:
    ids = {"all": prompt + answer, "output": answer, "prompt": prompt}[scope]
    return ids if window is None else ids[-window:]


# Token counts.


@settings(max_examples=100)
@given(journeys(), SCOPES, WINDOWS, WIDTHS)
@example(Journey([[1, 2], [1]], [("rewind", 0, 1), ("reorder", [1, 1, 0])]), "prompt", 1, MOST_IDS)
def test_counts_are_those_of_the_tokens_in_scope_and_window(journey, scope, window, width) -> None:
    """On the host those that came, in rows of their own; on a device all."""
    hosts = follow(
        lambda run: RowMemories([CountedText(width, window) for _ in run.prompts], scope), journey
    )
    devices = follow(
        lambda run: DeviceCounts(replace(run, vocab_size=width), scope, window), journey
    )
    for (memories, state, prompts, answers), (device, *_) in zip(hosts, devices, strict=True):
        memories.look(state)
        device.look(state)
        for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            counted = in_scope(scope, window, prompt, answer)
            expected = Counter(token_id for token_id in counted if token_id < width)
            text = memories.rows[i]
            assert len(text.ids) == len(expected)
            assert dict(zip(text.ids.tolist(), text.counts.tolist(), strict=True)) == expected
            everywhere = [expected[token_id] for token_id in range(width)]
            assert device.counts[i].tolist() == everywhere


def penalised(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return logits - 0.25 - counts * 0.5


@settings(max_examples=60)
@given(journeys(), SCOPES, WINDOWS, st.sampled_from([torch.float32, torch.float64]))
def test_host_and_device_change_the_same_logits(journey, scope, window, dtype) -> None:
    hosts = follow(lambda run: HostCounts(run, scope, window), journey)
    devices = follow(lambda run: DeviceCounts(run, scope, window), journey)
    for (host, state, prompts, _), (device, *_) in zip(hosts, devices, strict=True):
        host.look(state)
        device.look(state)
        size = len(prompts) * MOST_IDS
        logits = torch.linspace(-2, 3, size, dtype=dtype).view(MOST_IDS, len(prompts)).T
        expected = torch.where(device.counts > 0, penalised(logits, device.counts), logits)
        assert torch.equal(host.apply(logits, penalised), expected)
        assert torch.equal(device.apply(logits, penalised), expected)


def test_a_text_of_many_tokens_has_room() -> None:
    text = CountedText(300, window=150)
    for i in range(1000):
        text.push(i % 300)
    assert sorted(text.ids.tolist()) == [*range(100), *range(250, 300)]
    assert text.counts.tolist() == [1] * 150


# Suffix automaton.


def longest_endings(ids: list[int], shortest: int, longest: int, since: int) -> dict[int, int]:
    """By the definition: for each id the longest ending that came before it."""
    found: dict[int, int] = {}
    for place in range(since + 1, len(ids)):
        length = 0
        while (
            length < min(longest, place - since)
            and ids[place - 1 - length] == ids[len(ids) - 1 - length]
        ):
            length += 1
        if length >= shortest:
            found[ids[place]] = max(length, found.get(ids[place], 0))
    return found


@settings(max_examples=100)
@given(
    journeys(),
    st.integers(0, 3),
    st.integers(0, 12),
    st.integers(0, 12),
    st.none() | st.integers(1, 12),
)
def test_followers_are_those_of_the_definition(journey, shortest, more, longest, window) -> None:
    with_places = window is not None or shortest == 0

    def make(run):
        return RowMemories(
            [
                SuffixAutomaton(shortest, shortest + more, with_places=with_places)
                for _ in run.prompts
            ]
        )

    for memories, state, prompts, answers in follow(make, journey):
        memories.look(state)
        for automaton, prompt, answer in zip(memories.rows, prompts, answers, strict=True):
            ids = prompt + answer
            assert automaton.size == len(ids)
            since = 0 if window is None else max(0, len(ids) - window)
            expected = longest_endings(ids, shortest, min(shortest + more, longest), since)
            assert automaton.followers(longest, since) == expected
            assert len(automaton._lengths) <= 2 * len(ids) + 1


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(0, 40), st.booleans())
def test_what_is_taken_back_leaves_no_trace(ids, n, with_places) -> None:
    def text(ids):
        automaton = SuffixAutomaton(1, 4, with_places=with_places)
        for token_id in ids:
            automaton.push(token_id)
        return automaton

    whole, kept = text(ids), text(ids[: max(0, len(ids) - n)])
    copy = whole.copy()
    for _ in range(min(n, len(ids))):
        whole.pop()
    assert vars(whole) == vars(kept)
    assert vars(copy) == vars(text(ids))


# N-grams.


@settings(max_examples=100)
@given(journeys(), st.integers(2, 5), st.sampled_from(["all", "output"]))
def test_ngrams_are_those_of_the_definition(journey, n, scope) -> None:
    def make(run):
        return RowMemories([NGrams(n) for _ in run.prompts], scope)

    for memories, state, prompts, answers in follow(make, journey):
        memories.look(state)
        for ngrams, prompt, answer in zip(memories.rows, prompts, answers, strict=True):
            ids = in_scope(scope, None, prompt, answer)
            context = tuple(ids[max(0, len(ids) - n + 1) :])
            assert ngrams.context() == context
            places = range(n - 1, len(ids))
            expected = {ids[i] for i in places if tuple(ids[i - n + 1 : i]) == context}
            found = ngrams.after(context)
            assert len(found) == len(set(found)) and set(found) == expected


# Rows.


def test_rows_that_are_not_repeated_are_not_copied() -> None:
    memories = RowMemories([NGrams(2) for _ in range(3)])
    before = memories.rows
    memories.reorder([2, 0, 2])
    assert memories.rows[0] is before[2] and memories.rows[1] is before[0]
    assert memories.rows[2] is not before[2]


# Cost.

TEXTS = {
    "constant": lambda i: 7,
    "period 2": lambda i: i % 2,
    "period 7": lambda i: i % 7,
    "squares": lambda i: i * i % 101,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("with_places", [False, True])
def test_the_work_of_a_token_does_not_grow_with_the_text(text, with_places) -> None:
    """Counted, not timed: the states that are visited for a token, and those that are made."""
    work = _work(text, with_places)
    early, late = sum(work[300:800]), sum(work[3500:4000])
    assert late <= 1.05 * early


def _work(text, with_places: bool) -> list[int]:
    automaton = SuffixAutomaton(2, 160, with_places=with_places)
    links = automaton._links = _Counting(automaton._links)
    work = []
    for i in range(4000):
        before = links.reads
        automaton.push(text(i))
        automaton.followers(10**6)
        work.append(links.reads - before)
    return work


class _Counting(list):
    """A list that counts how often it is read; every state that is visited is."""

    reads = 0

    def __getitem__(self, place):
        self.reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("with_places", [False, True])
def test_the_work_of_taking_back_does_not_grow_with_the_text(with_places) -> None:
    """A token is tried and taken back, over and over."""

    def work(length: int) -> int:
        automaton = SuffixAutomaton(2, 160, with_places=with_places)
        links = automaton._links = _Counting(automaton._links)
        for i in range(length):
            automaton.push(TEXTS["squares"](i))
        before = links.reads
        for token_id in range(100):
            automaton.push(token_id)
            automaton.pop()
        return links.reads - before

    assert work(4040) <= 1.05 * work(505)
