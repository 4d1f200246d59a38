"""What a run takes, and what it leaves behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from genkit import Pipeline, caches, samplers, stopping
from genkit.backends import PyTorch
from genkit.core.result import Result, Stop
from genkit.core.settings import Setting
from genkit.errors import PartError, UnsupportedError
from genkit.testing import TinyModel

MB = 10**6
STATM = Path("/proc/self/statm")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Each thread of a kernel takes its own working memory."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def memory_events(call: Callable[[], object]) -> list[int]:
    """The bytes that PyTorch takes during a call, and gives back (below 0), in order.

    Kernels are heard too, of which only the profiler knows what they take for themselves.
    """
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        call()
    events = profile.profiler.kineto_results.events()
    events = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    return [event.nbytes() for event in events]


def taken(call: Callable[[], object]) -> list[int]:
    """The sizes that are asked for during a call, from small to large."""
    return sorted(nbytes for nbytes in memory_events(call) if nbytes > 0)


def peak(call: Callable[[], object]) -> int:
    """The most bytes held during a call, beyond those held before it."""
    held = most = 0
    for nbytes in memory_events(call):
        held += nbytes
        most = max(most, held)
    return most


# --- prefill -----------------------------------------------------------------------------


@pytest.mark.parametrize("manager", [caches.Dynamic(), caches.Static()], ids=lambda m: m.type)
@pytest.mark.parametrize("chunk", [None, 256])
def test_the_peak_of_a_long_prefill_has_no_room_for_all_logits(
    chunk: int | None, manager: Any
) -> None:
    """MEM-01: 2,000 positions of a vocabulary of 50,000 would take 400 MB."""
    module = zoo.build("llama", vocab_size=50_000, max_position_embeddings=2048)
    model = PyTorch.wrap(module, prefill_chunk=chunk)
    pipeline = Pipeline(model, cache=manager, stop_criteria=[])
    ids = zoo.prompt(2000)
    seen: list[tuple[int, ...]] = []
    module.lm_head.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[:2]))
    steps = pipeline.decode(ids, max_new_tokens=2)
    found: list[Any] = []
    assert peak(lambda: found.append(next(steps))) < 50 * MB
    steps.close()
    assert set(seen) == {(1, 1)}
    with torch.no_grad():
        hidden = module.model(torch.tensor([ids])).last_hidden_state[:, -1]
        assert (found[0].raw_logits - hidden @ module.lm_head.weight.T).abs().max() < 1e-3


def test_a_prefill_in_pieces_takes_less() -> None:
    """It needs the room of one piece besides keys and values."""
    module = zoo.build("llama", max_position_embeddings=2048, intermediate_size=2048)
    ids = zoo.prompt(2000)

    def prefill(chunk: int | None) -> Callable[[], object]:
        model = PyTorch.wrap(module, prefill_chunk=chunk)
        pipeline = Pipeline(model, cache=caches.Static())
        return lambda: pipeline.generate(ids, max_new_tokens=1)

    keys_and_values = 2 * 2 * 2 * 8 * 2001 * 4
    whole, in_pieces = peak(prefill(None)), peak(prefill(100))
    assert in_pieces - keys_and_values < (whole - keys_and_values) / 4


# --- a decode step -----------------------------------------------------------------------


class Noting:
    """A manager that knows which cache it has handed out last."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.supports = manager.supports
        self.release = manager.release

    def acquire(self, model: Any, state: Any) -> Any:
        self.cache = self.manager.acquire(model, state)
        return self.cache


def step_at(model: Any, manager: Any, num_tokens: int, rooms: list[int]) -> Callable[[], object]:
    """A decode step that feeds token `num_tokens` + 1; notes what the cache holds before it."""

    noting = Noting(manager)
    pipeline = Pipeline(model, cache=noting, stop_criteria=[])
    steps = pipeline.decode(zoo.prompt(num_tokens), max_new_tokens=1000 - num_tokens)
    next(steps)
    next(steps)
    rooms.append(noting.cache.num_bytes)
    return lambda: next(steps)


def test_a_step_on_static_memory_takes_the_same_at_every_length(one_thread: None) -> None:
    """At 600 and 900 tokens to the byte; before that attention's own row of scores grows.

    That row is of 512 keys at most: longer rows are attended to in blocks. Nothing takes room for a
    copy of keys or values, although four query heads share each of them.
    """
    model = PyTorch.wrap(zoo.build("llama", max_position_embeddings=1024))
    rooms: list[int] = []
    at = {
        num_tokens: taken(step_at(model, caches.Static(), num_tokens, rooms))
        for num_tokens in (100, 400, 600, 900)
    }
    assert at[600] == at[900]
    assert rooms == [2 * 2 * 2 * 8 * 1000 * 4] * 4
    assert len(at[100]) == len(at[400]) == len(at[900])
    num_layers, keys_of_a_layer = 2, 2 * 8 * 300 * 4
    row_of_scores = 300 * 4
    assert sum(at[400]) - sum(at[100]) <= num_layers * row_of_scores < keys_of_a_layer
    assert max(at[900]) < keys_of_a_layer


def test_growing_memory_takes_room_seldom(one_thread: None) -> None:
    """`dynamic` doubles: a step that does not outgrow its room takes what a static one takes."""
    model = PyTorch.wrap(zoo.build("llama", max_position_embeddings=1024))
    rooms: list[int] = []
    dynamic, static = (
        taken(step_at(model, manager, 600, rooms))
        for manager in (caches.Dynamic(), caches.Static())
    )
    assert dynamic == static
    assert rooms[0] <= rooms[1]


# --- after a run -------------------------------------------------------------------------


def num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def plain(value: Any) -> Iterator[type]:
    """The types of everything that a result is made of."""
    yield type(value)
    if isinstance(value, Result | Stop):
        for name in value.__dataclass_fields__:
            yield from plain(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from plain(item)


def test_results_that_are_kept_are_ids_text_and_numbers() -> None:
    """MEM-04: 50 results of 64 tokens."""
    pipeline = Pipeline(TinyModel(), sampler=samplers.Categorical())
    kept = [pipeline.generate("warm", seed=0, max_new_tokens=64)]
    tensors = num_tensors()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(2):
            kept += pipeline.generate(["a prompt"] * 25, seed=i, max_new_tokens=64)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert num_tensors() == tensors
    assert grown / 50 < 100_000
    assert {kind for result in kept for kind in plain(result)} == {
        Result, Stop, Setting, str, int, list, tuple, type(None)
    }  # fmt: skip


def short_runs(cache: Any) -> Callable[[int], None]:
    """Makes the i-th of many runs: plain, in a batch, streamed, left early, failing."""
    model = TinyModel(num_layers=1)
    limit = stopping.MaxNewTokens(limit=2)

    def fail(state: Any, logits: torch.Tensor) -> torch.Tensor:
        raise ValueError("on purpose")

    sampled = Pipeline(model, cache=cache, sampler=samplers.Categorical(), stop_criteria=[limit])
    failing = Pipeline(model, cache=cache, processors=[fail], stop_criteria=[limit])

    def run(i: int) -> None:
        prompt = f"run {i % 997}"
        kind = i % 5
        if kind == 0:
            sampled.generate(prompt)
        elif kind == 1:
            sampled.generate([prompt, "b"], num_samples=2)
        elif kind == 2:
            assert list(sampled.stream(prompt))[-1].result is not None
        elif kind == 3:
            steps = sampled.decode(prompt)
            next(steps)
            steps.close()
        else:
            with pytest.raises(PartError, match="on purpose"):
                failing.generate(prompt)

    return run


def bounded(name: str) -> Any:
    """A manager; what it may keep is full after a few runs."""
    return caches.Prefix(max_bytes=20_000) if name == "Prefix" else getattr(caches, name)()


@pytest.mark.parametrize("manager", caches.__all__)
def test_runs_leave_no_object_behind(manager: str) -> None:
    run = short_runs(bounded(manager))
    counts = []
    for i in range(100):
        run(i)
        if i in (29, 99):
            gc.collect()
            counts.append(len(gc.get_objects()))
    assert counts[1] - counts[0] < 50


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not STATM.exists(), reason="this system does not say what is resident")
@pytest.mark.parametrize("manager", caches.__all__)
def test_ten_thousand_short_runs_leave_memory_where_it_was(manager: str) -> None:
    run = short_runs(bounded(manager))
    for i in range(10_000):  # until then the allocator still grows, by 3 MB, and then no more
        run(i)
    memory, objects = resident(), len(gc.get_objects())
    for i in range(10_000, 20_000):
        run(i)
    assert resident() - memory < 2 * MB  # a quarter of a kilobyte a run would be more
    assert len(gc.get_objects()) - objects < 100


def test_memory_that_is_not_there_is_named() -> None:
    limit = stopping.MaxNewTokens(limit=2 * 10**9)
    module = zoo.build("llama", max_position_embeddings=10**12)
    pipeline = Pipeline(PyTorch.wrap(module), cache=caches.Static(), stop_criteria=[limit])
    with pytest.raises(UnsupportedError, match=r"2,000,000,003 columns.*max_new_tokens.*dynamic"):
        pipeline.generate([1, 2, 3])
