"""The answer sees the first and the last tokens only, exactly as one masked forward would."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from genkit.components.caches import Dynamic, SinkWindow
from genkit.components.caches.sink_window import SinkWindowCache
from genkit.components.stopping import MaxNewTokens
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, TinyModel

VOCAB_SIZE = 31
STEPS = 12


@pytest.fixture(params=["rotary", "learned"])
def model(request: pytest.FixtureRequest) -> TinyModel:
    return TinyModel(positions=request.param, vocab_size=VOCAB_SIZE, dtype=torch.float64)


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(1000 * seed + num_tokens)
    return torch.randint(0, VOCAB_SIZE, (num_tokens,), generator=generator).tolist()


def state_of(prompts: Sequence[Sequence[int]], room: int = 200) -> GenerationState:
    limits = [len(ids) + room for ids in prompts]
    return GenerationState(prompts, limits, RowRandom([0] * len(prompts), [0] * len(prompts)))


def visible(num_tokens: int, prompt_end: int, num_sinks: int, window: int) -> torch.Tensor:
    """Which token of a row sees which, bool `[tokens, tokens]`."""
    query = torch.arange(num_tokens)[:, None]
    key = torch.arange(num_tokens)
    held = (key < num_sinks) | (key >= query - window) | (query < prompt_end)
    return (key <= query) & (held | (key == query))


def masked_forward(model: TinyModel, ids: Sequence[int], mask: torch.Tensor) -> torch.Tensor:
    """Logits of every token of one row in one forward, without any cache, `[tokens, vocab]`."""

    def norm(hidden: torch.Tensor) -> torch.Tensor:
        return hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()

    def heads(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (hidden @ weight).reshape(len(ids), -1, model.head_dim).transpose(0, 1)

    def turned(states: torch.Tensor) -> torch.Tensor:
        if model.position_kind == "learned":
            return states
        half = model.head_dim // 2
        speeds = 100.0 ** (-torch.arange(half, dtype=model.dtype) / half)
        turn = torch.polar(
            torch.ones((), dtype=model.dtype), torch.arange(len(ids))[:, None] * speeds
        )
        pairs = (
            torch.complex(states[..., :half].contiguous(), states[..., half:].contiguous()) * turn
        )
        return torch.cat((pairs.real, pairs.imag), -1)

    hidden = model.embedding[torch.tensor(ids)]
    if model.position_kind == "learned":
        hidden = hidden + model.positions[: len(ids)]
    for weights in model.layers:
        before = norm(hidden)
        query = turned(heads(before, weights["q"]))
        share = model.num_heads // model.num_kv_heads
        key = turned(heads(before, weights["k"])).repeat_interleave(share, 0)
        value = heads(before, weights["v"]).repeat_interleave(share, 0)
        scores = query @ key.transpose(1, 2) / math.sqrt(model.head_dim)
        mixed = scores.masked_fill(~mask, -math.inf).softmax(-1) @ value
        hidden = hidden + mixed.transpose(0, 1).reshape(len(ids), -1) @ weights["o"]
        hidden = hidden + torch.tanh(norm(hidden) @ weights["up"]) @ weights["down"]
    return norm(hidden) @ model.head


def logits_along(
    model: Any,
    manager: Any,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    staying: Mapping[int, Sequence[int]] | None = None,
) -> dict[int, list[torch.Tensor]]:
    """Logits of each row while its answer is appended; `staying`: rows kept after a step."""
    state = state_of(prompts)
    cache = manager.acquire(model, state)
    rows = list(range(len(prompts)))
    found: dict[int, list[torch.Tensor]] = {row: [] for row in rows}
    for step in range(len(answers[0])):
        logits = model(state.since(cache.length), cache)
        for row, given in zip(rows, logits, strict=True):
            found[row].append(given)
        state.append(torch.tensor([answers[row][step] for row in rows]))
        if staying and step in staying:
            indices = [rows.index(row) for row in staying[step]]
            rows = list(staying[step])
            state.reorder(indices)
            cache.reorder(indices)
    return found


def check(
    model: TinyModel,
    num_sinks: int,
    window: int,
    prompts: Sequence[Sequence[int]],
    staying: Mapping[int, Sequence[int]] | None = None,
    steps: int = STEPS,
) -> None:
    """What each row gives in the batch is what one masked forward of that row gives."""
    answers = [prompt(steps, seed + 1) for seed in range(len(prompts))]
    manager = SinkWindow(num_sinks=num_sinks, window=window)
    given = logits_along(model, manager, prompts, answers, staying)
    for row, ids in enumerate(prompts):
        whole = [*ids, *answers[row]]
        mask = visible(len(whole), len(ids), num_sinks, window)
        expected = masked_forward(model, whole, mask)[len(ids) - 1 :]
        logits = torch.stack(given[row])
        assert (logits - expected[: len(logits)]).abs().max() < 1e-9, (num_sinks, window, row)


# --- the same logits as one masked forward -----------------------------------------------


def test_the_reference_is_the_model_where_nothing_is_masked(model: TinyModel) -> None:
    ids = prompt(20)
    cache = model.new_cache(state_of([ids]))
    given = model.last(torch.tensor([ids]), cache, 20)[0]
    expected = masked_forward(model, ids, torch.ones(20, 20).tril().bool())
    assert (given - expected).abs().max() < 1e-9


@pytest.mark.parametrize("num_sinks", [0, 1, 4])
@pytest.mark.parametrize("window", [1, 2, 7, 8])
def test_every_prompt_length_around_the_edges(
    model: TinyModel, num_sinks: int, window: int
) -> None:
    for num_tokens in range(1, num_sinks + window + 4):
        check(model, num_sinks, window, [prompt(num_tokens)])


@pytest.mark.parametrize("num_sinks", [0, 1, 4])
def test_a_prompt_much_longer_than_what_stays(model: TinyModel, num_sinks: int) -> None:
    check(model, num_sinks, 5, [prompt(60)])


@pytest.mark.parametrize("num_pads", range(11))
def test_rows_of_different_lengths(model: TinyModel, num_pads: int) -> None:
    """The shorter row gets to evicting while the longer one does, or up to ten steps later."""
    for num_sinks, window in [(0, 3), (1, 4), (4, 6), (4, 12)]:
        check(model, num_sinks, window, [prompt(12), prompt(12 - num_pads, 1)], steps=24)


@pytest.mark.parametrize("step", [0, 1, 3, 9])
def test_rows_leave_and_change_places(model: TinyModel, step: int) -> None:
    """The longest, the shortest, or both; what is left may be narrower than before."""
    prompts = [prompt(14), prompt(3, 1), prompt(9, 2), prompt(6, 3)]
    for stay in ([3, 1], [0, 2], [1], [3, 2, 1, 0]):
        check(model, 2, 5, prompts, {step: stay, step + 4: stay[:1]}, steps=20)


def test_nothing_is_forgotten_while_all_fits(model: TinyModel) -> None:
    prompts, answers = [prompt(9), prompt(4)], [prompt(STEPS, 1), prompt(STEPS, 2)]
    kept = logits_along(model, SinkWindow(num_sinks=4, window=20), prompts, answers)
    plain = logits_along(model, Dynamic(), prompts, answers)
    assert all(torch.equal(a, b) for i in (0, 1) for a, b in zip(kept[i], plain[i], strict=True))


def test_forgetting_matters_to_the_logits(model: TinyModel) -> None:
    """The tests above could not fail if it did not."""
    prompts, answers = [prompt(20)], [prompt(STEPS, 1)]
    kept = logits_along(model, SinkWindow(num_sinks=4, window=8), prompts, answers)[0]
    plain = logits_along(model, Dynamic(), prompts, answers)[0]
    assert torch.equal(kept[0], plain[0])  # the prompt is read whole
    assert all((a - b).abs().max() > 1e-2 for a, b in zip(kept[1:], plain[1:], strict=True))


def test_a_prompt_fed_in_pieces_is_read_whole(model: TinyModel) -> None:
    ids = prompt(30)
    state = state_of([ids])
    whole, pieces = (SinkWindow(num_sinks=2, window=4).acquire(model, state) for _ in range(2))
    model(state.token_ids, whole)
    for first in range(0, 30, 7):
        assert pieces.layers[0][0].shape[2] == first if first else not pieces.layers  # type: ignore[attr-defined]
        model(state.token_ids[:, first : first + 7], pieces)
    assert pieces.layers[0][0].shape[2] == 6  # type: ignore[attr-defined]
    given, expected = (model(torch.tensor([[5]]), cache) for cache in (pieces, whole))
    assert (given - expected).abs().max() < 1e-9


# --- what stays --------------------------------------------------------------------------


def slots(cache: Any) -> list[list[int]]:
    """The columns in the cache of a `TinyModel`, the same in each layer."""
    first, *others = (columns.tolist() for columns in cache.inner._columns)
    assert all(columns == first for columns in others)
    return first


def test_which_columns_stay_is_each_rows_own_affair(model: TinyModel) -> None:
    state = state_of([prompt(8), prompt(3)])
    cache: Any = SinkWindow(num_sinks=2, window=3).acquire(model, state)
    seen = []
    for _ in range(5):
        model(state.since(cache.length), cache)
        seen.append(slots(cache))
        state.append(torch.tensor([1, 2]))
    assert seen == [
        [[0, 1, 5, 6, 7], [-1, -1, 5, 6, 7]],
        [[0, 1, 6, 7, 8], [-1, 5, 6, 7, 8]],
        [[0, 1, 7, 8, 9], [5, 6, 7, 8, 9]],
        [[0, 1, 8, 9, 10], [5, 6, 8, 9, 10]],
        [[0, 1, 9, 10, 11], [5, 6, 9, 10, 11]],
    ]


def test_moving_all_rows_alike_is_choosing_row_by_row(
    model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, answers = [prompt(9), prompt(4)], [prompt(30, 1), prompt(30, 2)]
    manager = SinkWindow(num_sinks=2, window=5)
    quick = logits_along(model, manager, prompts, answers)
    moved = []
    monkeypatch.setattr(SinkWindowCache, "_is_settled", lambda *_: moved.append(1))
    plain = logits_along(model, manager, prompts, answers)
    assert moved
    assert all(torch.equal(a, b) for i in (0, 1) for a, b in zip(quick[i], plain[i], strict=True))


def test_a_failed_forward_leaves_nothing_behind(model: TinyModel) -> None:
    ids = prompt(12)
    state = state_of([ids])
    cache, straight = (SinkWindow(num_sinks=2, window=4).acquire(model, state) for _ in range(2))
    for each in (cache, straight):
        model(state.token_ids, each)
    held = model.layers[1].pop("down")
    with pytest.raises(KeyError):
        model(torch.tensor([[3]]), cache)
    model.layers[1]["down"] = held
    cache.crop(12)
    for token_id in (5, 6, 7):
        given, expected = (model(torch.tensor([[token_id]]), each) for each in (cache, straight))
        assert torch.equal(given, expected)


def test_cutting_back_is_refused_once_something_was_forgotten(model: TinyModel) -> None:
    state = state_of([prompt(6)])
    cache = SinkWindow(num_sinks=1, window=6).acquire(model, state)
    model(state.token_ids, cache)
    cache.crop(5)
    assert cache.length == 5
    model(torch.tensor([[1, 2, 3]]), cache)
    with pytest.raises(UnsupportedError, match="from 8 to 7"):
        cache.crop(7)
    assert cache.length == 8


# --- long runs ---------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_stays_the_same_over_5000_tokens() -> None:
    model = TinyModel(vocab_size=VOCAB_SIZE, context_length=5_000)
    pipeline = Pipeline(model, cache=Watched(SinkWindow(num_sinks=4, window=32)))
    [result] = [pipeline.generate(prompt(50))]
    held = pipeline.parts.cache.held
    assert set(held[100:]) == {2 * 2 * 36 * 2 * 6 * 4}
    assert len(held) == 4_950 == len(result.token_ids)
    assert (result.finish_reason, result.stop.criterion) == ("length", "context_length")


class Watched:
    """Takes down what the cache of another manager holds between steps."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.held: list[int] = []

    def acquire(self, model: Any, state: GenerationState) -> Any:
        cache = self.manager.acquire(model, state)
        advance = cache.advance

        def watched(n: int) -> None:
            advance(n)
            self.held.append(cache.num_bytes)

        cache.advance = watched
        return cache

    def release(self, cache: Any, state: GenerationState) -> None:
        self.manager.release(cache, state)


def test_a_run_ends_where_the_context_is_full() -> None:
    model = TinyModel(vocab_size=VOCAB_SIZE, context_length=40)
    pipeline = Pipeline(model, cache=SinkWindow(num_sinks=1, window=4))
    results = pipeline.generate([prompt(9), prompt(20)])
    assert [len(result.token_ids) for result in results] == [31, 20]
    assert {result.finish_reason for result in results} == {"length"}


def test_a_row_of_a_batch_is_the_row_alone() -> None:
    model = TinyModel(vocab_size=VOCAB_SIZE, dtype=torch.float64)
    stop = [MaxNewTokens(limit=40)]
    pipeline = Pipeline(model, cache=SinkWindow(num_sinks=2, window=6), stop_criteria=stop)
    prompts = [prompt(n) for n in (12, 1, 7, 20)]
    together = pipeline.generate(prompts, seed=0)
    alone = [pipeline.generate(ids, seed=0) for ids in prompts]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]


def test_options_and_needs() -> None:
    assert (SinkWindow().num_sinks, SinkWindow().window, SinkWindow.grade) == (4, 1024, "lossy")
    for options in ({"num_sinks": -1}, {"window": 0}, {"window": True}):
        with pytest.raises(OptionError):
            SinkWindow(**options)
    assert SinkWindow().supports(TinyModel()) == {"ragged", "reorder"}
    for lacking in itertools.chain(SinkWindow.requires):
        supports = SinkWindow.requires - {lacking}
        with pytest.raises(UnsupportedError, match=f"'sink_window'.*{lacking}"):
            Pipeline(ScriptedModel([[0.0, 1.0]], supports=supports), cache=SinkWindow())
