"""Warm equals cold: what is reused changes nothing but the number of tokens that are fed."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
import torch

from genkit import Kit
from genkit.backends.base import Backend
from genkit.components.base import StopCriterion
from genkit.components.caches import Dynamic, NoCache, Prefix
from genkit.components.caches.prefix_store import PrefixStats
from genkit.components.stopping import MaxNewTokens, StopTokenIds
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import OptionError, PartError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.plugins import hookimpl
from genkit.testing import ScriptedModel, TinyModel

KINDS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "window": {"window": 8},
    "mixed": {"window": [8, None]},
    "learned_window": {"positions": "learned", "window": 8},
}


class Spy(TinyModel):
    """Takes down how many columns it is fed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"context_length": 512, **options})
        self.fed: list[int] = []
        self.fail_at: int | None = None  # the call that fails

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        self.fed.append(input_ids.shape[1])
        if len(self.fed) - 1 == self.fail_at:
            super().last(input_ids, _NeverAdvancing(cache), n)
            raise RuntimeError("out of memory")
        return super().last(input_ids, cache, n)

    def taken(self) -> list[int]:
        """What was fed since it was asked last."""
        fed, self.fed = self.fed, []
        return fed


class _NeverAdvancing:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def advance(self, n: int) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The models are so small that a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ids(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count,), generator=generator).tolist()


def pipeline(model: Any, cache: Any, steps: int = 4, *criteria: StopCriterion) -> Pipeline:
    return Pipeline(model, cache=cache, stop_criteria=[*criteria, MaxNewTokens(limit=steps)])


Rows = list[list[int]]


def run(
    model: Any, cache: Any, prompts: Sequence[Sequence[int]], steps: int = 4, *criteria: Any
) -> tuple[Rows, torch.Tensor]:
    """The tokens of every row, and the logits of the first step."""
    rows: Rows = [[] for _ in prompts]
    first = None
    for step in pipeline(model, cache, steps, *criteria).decode([list(p) for p in prompts]):
        first = step.raw_logits if first is None else first
        for row, token_id in zip(step.rows.tolist(), step.next_ids.tolist(), strict=True):
            rows[row].append(token_id)
    assert first is not None
    return rows, first


def check(model: Any, cache: Prefix, prompts: Sequence[Sequence[int]], **options: Any) -> Rows:
    """Warm equals cold; the tokens."""
    warm, warm_logits = run(model, cache, prompts, **options)
    fed = model.fed
    model.fed = []
    cold, cold_logits = run(model, Dynamic(), prompts, **options)
    model.fed = fed
    assert warm == cold
    torch.testing.assert_close(warm_logits, cold_logits, rtol=0, atol=1e-4)
    return warm


@pytest.fixture(params=list(KINDS))
def model(request: pytest.FixtureRequest) -> Spy:
    return Spy(**KINDS[request.param])


@pytest.mark.parametrize("length", [1, 2, 8, 9, 40, 64])
def test_a_repeated_prompt_feeds_one_token(model: Spy, length: int) -> None:
    cache, prompt = Prefix(), ids(length)
    check(model, cache, [prompt])
    assert model.taken() == [length, 1, 1, 1]
    for _ in range(3):
        check(model, cache, [prompt])
        assert model.taken() == [1, 1, 1, 1]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 300])
def test_what_is_shared_is_not_fed(model: Spy, length: int) -> None:
    cache, common = Prefix(), ids(length)
    check(model, cache, [[*common, 1, *ids(20, seed=1)]])
    assert model.taken()[0] == length + 21
    check(model, cache, [[*common, 2, *ids(10, seed=2)]])
    assert model.taken()[0] == 11
    check(model, cache, [[*common, 2, *ids(10, seed=2), 7]])
    assert model.taken()[0] == 1


def test_a_prompt_that_a_longer_text_begins_with(model: Spy) -> None:
    cache, text = Prefix(), ids(70)
    check(model, cache, [text])
    model.taken()
    for length in (1, 2, 8, 9, 63, 64, 65, 69):
        check(model, cache, [text[:length]])
        assert model.taken()[0] == 1


def test_a_prompt_that_goes_on_where_an_answer_ended(model: Spy) -> None:
    cache, prompt = Prefix(), ids(30)
    [answer] = check(model, cache, [prompt], steps=20)
    model.taken()
    check(model, cache, [[*prompt, *answer, 5, 6, 7]])
    # The last token of the answer was never fed.
    assert model.taken()[0] == 4


def test_nothing_in_common(model: Spy) -> None:
    cache = Prefix()
    check(model, cache, [[1, *ids(20)]])
    model.taken()
    check(model, cache, [[2, *ids(20)]])
    assert model.taken()[0] == 21
    assert cache.stats(model)[:2] == (0, 0)


@pytest.mark.parametrize(
    ("known", "width"),
    [
        ([(0, 30), (1, 12), (2, 20)], 1),  # each stored whole
        ([(0, 30), (1, 12)], 20),  # 1, 1 and 20: the whole of row 2
        ([(0, 10), (1, 5), (2, 20)], 20),  # 20, 7 and 1 to feed
        ([(0, 25), (1, 2), (2, 19)], 10),  # 5, 10 and 1 to feed
        ([(1, 12), (2, 20)], 30),  # nothing for the longest row
    ],
)
def test_rows_feed_the_longest_tail(model: Spy, known: list[tuple[int, int]], width: int) -> None:
    cache = Prefix()
    prompts = [[row, *ids(length - 1, seed=row)] for row, length in enumerate((30, 12, 20))]
    for row, length in known:
        check(model, cache, [prompts[row][:length]])
    model.taken()
    check(model, cache, prompts)
    assert model.taken()[0] == width
    check(model, cache, prompts[::-1])
    assert model.taken()[0] == 1


def test_a_row_may_begin_after_what_is_reused() -> None:
    model, cache = Spy(), Prefix()
    check(model, cache, [ids(8)])
    model.taken()
    check(model, cache, [ids(30), [5, 6, 7]])  # row 1 begins at column 27, of which 7 are reused
    assert model.taken()[0] == 22
    assert cache.stats(model)[:2] == (1, 8)


def test_padding_is_zero() -> None:
    model, cache = TinyModel(), Prefix()
    prompts = [ids(30), ids(12, seed=1)]
    run(model, cache, prompts)
    state = GenerationState(prompts, [40, 40], RowRandom([0, 0], [0, 0]))
    lent = cache.acquire(model, state)
    assert lent.length == 29
    for keys, values in lent.layers:
        assert keys.shape[2] == values.shape[2] == 29
        for tensor in (keys, values):
            assert not tensor[1, :, :18].any()
            assert tensor[1, :, 18:].any()


def test_rows_that_leave_early(model: Spy) -> None:
    cache, prompts = Prefix(), [ids(30), ids(12, seed=1), ids(20, seed=2)]
    plain, _ = run(model, Dynamic(), prompts, 8)
    stop = StopTokenIds(token_ids=(plain[1][2],))
    warm, _ = run(model, cache, prompts, 8, stop)
    assert len(warm[1]) <= 3
    model.taken()
    for prompt, answer in zip(prompts, warm, strict=True):
        left = len(answer) < max(map(len, warm))
        check(model, cache, [[*prompt, *answer, 3]])
        # A row that left before the end of its batch is not stored.
        assert model.taken()[0] == (len(prompt) + len(answer) + 1 if left else 2)


def test_samples_share_their_prompt() -> None:
    model, cache = Spy(), Prefix()
    shared = Pipeline(model, cache=cache, stop_criteria=[MaxNewTokens(limit=3)])
    first = shared.generate(ids(20), num_samples=3, seed=1)
    assert model.taken()[0] == 20
    again = shared.generate(ids(20), num_samples=3, seed=1)
    assert model.taken()[0] == 1
    assert [r.token_ids for r in again] == [r.token_ids for r in first]


def test_what_is_stored_is_nobodys_to_write_into() -> None:
    model, cache, prompt = Spy(), Prefix(), ids(20)
    check(model, cache, [prompt])
    state = GenerationState([prompt], [40], RowRandom([0], [0]))
    lent = cache.acquire(model, state)
    for keys, values in lent.layers:
        keys.fill_(9.0)
        values.fill_(9.0)
    check(model, cache, [prompt])
    other = GenerationState([ids(9, seed=1)], [40], RowRandom([0], [0]))
    lent = cache.acquire(model, other)
    model(other.since(0), lent)
    cache.release(lent, other)
    for keys, values in lent.layers:
        keys.fill_(9.0)
        values.fill_(9.0)
    model.taken()
    check(model, cache, [ids(9, seed=1)])
    assert model.taken()[0] == 1


def test_an_entry_takes_no_more_memory_than_it_says() -> None:
    model, cache = TinyModel(), Prefix()
    run(model, cache, [ids(20), ids(30, seed=1)], 4)
    # 33 and 23 tokens; 2 layers of keys and values, 2 heads of 6 floats, and 8 bytes for an id
    assert cache.stats(model) == PrefixStats(0, 0, 2, (33 + 23) * (2 * 2 * 2 * 6 * 4 + 8))
    entries = cache._shelf(model).store._entries.values()
    for entry in entries:
        for layer in entry.layers:
            for tensor in layer:
                assert tensor.untyped_storage().nbytes() == tensor.nbytes


PER_TOKEN = 2 * 2 * 2 * 6 * 4 + 8


def stored(model: Any, cache: Prefix) -> list[int]:
    """Lengths of the entries, those used last at the end."""
    return [len(entry.ids) for entry in cache._shelf(model).store._entries.values()]


def test_a_text_that_goes_on_takes_the_place_of_its_beginning() -> None:
    model, cache = TinyModel(), Prefix()
    run(model, cache, [ids(20)], 1)
    run(model, cache, [ids(20, seed=1)], 1)
    run(model, cache, [[*ids(20), 1]], 1)
    assert stored(model, cache) == [20, 21]
    run(model, cache, [ids(9)], 1)  # a beginning of it: nothing new
    run(model, cache, [ids(20, seed=1)], 1)
    assert stored(model, cache) == [21, 20]


def test_what_was_used_first_makes_room() -> None:
    model, cache = TinyModel(), Prefix(max_bytes=30 * PER_TOKEN)
    for seed in range(3):
        run(model, cache, [[seed, *ids(9)]], 1)
    run(model, cache, [[0, *ids(5)]], 1)  # the first is used again
    run(model, cache, [[3, *ids(10)]], 1)
    assert stored(model, cache) == [10, 11]
    assert cache.stats(model).num_bytes <= 30 * PER_TOKEN
    run(model, cache, [ids(31)], 1)  # too large for the whole budget: nothing makes room for it
    assert stored(model, cache) == [10, 11]
    run(model, cache, [[4, *ids(29)]], 1)
    assert stored(model, cache) == [30]


@pytest.mark.parametrize("fail_at", [0, 1, 3])
def test_after_a_failure_what_was_fed_is_stored(model: Spy, fail_at: int) -> None:
    cache, prompt = Prefix(), ids(20)
    model.fail_at = fail_at
    with pytest.raises(RuntimeError, match="out of memory"):
        run(model, cache, [prompt, ids(9, seed=1)], 6)
    model.fail_at = None
    model.taken()
    check(model, cache, [prompt])
    assert model.taken()[0] == (20 if fail_at == 0 else 1)


def test_after_an_early_close_what_was_fed_is_stored() -> None:
    model, cache, prompt = Spy(), Prefix(), ids(20)
    steps = pipeline(model, cache).decode(prompt)
    next(steps)
    steps.close()
    assert stored(model, cache) == [20]


class Raising:
    name = "raising"

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")


def test_storing_hides_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, cache = TinyModel(), Prefix()

    def clone(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("genkit.components.caches.prefix._row_of", clone)
    with caplog.at_level(logging.WARNING), pytest.raises(PartError, match="mine"):
        Pipeline(model, cache=cache, processors=[Raising()]).generate(ids(5))
    assert "not stored: OutOfMemoryError: CUDA out of memory" in caplog.text
    caplog.clear()
    run(model, cache, [ids(5)])  # nor does it fail a run that went well
    assert "not stored" in caplog.text
    assert cache.stats(model) == (0, 0, 0, 0)


def test_rows_that_may_be_mixed_up_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = TinyModel(), Prefix()
    prompts = [ids(20), ids(20, seed=1)]
    state = GenerationState(prompts, [40, 40], RowRandom([0, 0], [0, 0]))
    lent = cache.acquire(model, state)
    model(state.since(0), lent)

    def reorder(indices: Sequence[int]) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(lent.inner, "reorder", reorder)
    state.reorder([1, 0])
    with pytest.raises(RuntimeError):
        lent.reorder([1, 0])
    cache.release(lent, state)
    assert cache.stats(model).num_entries == 0


def test_what_the_state_does_not_have_is_not_stored() -> None:
    model, cache, prompt = TinyModel(), Prefix(), ids(20)
    state = GenerationState([prompt], [40], RowRandom([0], [0]))
    lent = cache.acquire(model, state)
    model(torch.tensor([[*prompt, 1, 2, 3]]), lent)  # three that were only tried
    cache.release(lent, state)
    assert stored(model, cache) == [20]


def test_reordered_rows_are_stored_as_they_are_then() -> None:
    model, cache = Spy(), Prefix()
    prompts = [ids(20), ids(15, seed=1)]
    state = GenerationState(prompts, [40, 40], RowRandom([0, 0], [0, 0]))
    lent = cache.acquire(model, state)
    model(state.since(0), lent)
    state.reorder([1, 0, 1])
    lent.reorder([1, 0, 1])
    cache.release(lent, state)
    assert cache.stats(model).num_entries == 2
    model.taken()
    for prompt in prompts:
        check(model, cache, [[*prompt, 4]])
        assert model.taken()[0] == 1


class Nan(TinyModel):
    """Whose values are not finite, once."""

    broken = True

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        logits = super().last(input_ids, cache, n)
        if self.broken:
            cache.layers[1][1][:, :, 3] = torch.nan
        return logits


def test_what_is_not_finite_is_not_stored() -> None:
    model, cache = Nan(), Prefix()
    run(model, cache, [ids(20)], 1)
    assert cache.stats(model).num_entries == 0
    model.broken = False
    run(model, cache, [ids(20)], 1)
    assert cache.stats(model).num_entries == 1


class Ring(TinyModel):
    """Whose second layer drops what lies more than 8 columns back (CACHE-21, CACHE-22)."""

    def __init__(self) -> None:
        super().__init__(window=[None, 8])
        self.fed: list[int] = []

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        self.fed.append(input_ids.shape[1])
        logits = super().last(input_ids, cache, n)
        keys, values = cache.layers[1]
        columns = torch.arange(max(0, cache.length - 8), cache.length).expand(len(keys), -1)
        cache.replace(1, keys[:, :, -8:], values[:, :, -8:], columns)
        return logits


def test_a_layer_that_has_dropped_columns_is_not_cut() -> None:
    model, cache, text = Ring(), Prefix(), ids(30)
    check(model, cache, [text])
    for _ in range(2):
        model.fed = []
        check(model, cache, [[*text[:12], 1, 2]])
        assert model.fed[0] == 14
    assert cache.stats(model).num_entries == 0


def test_a_model_without_layers_of_its_own_shares_nothing() -> None:
    model = ScriptedModel.of_ids([1, 2, 3], 5)
    shared = pipeline(model, Prefix(), 3)
    for _ in range(2):
        assert shared.generate([4, 4, 4, 4]).token_ids == [1, 2, 3]
    assert [fed.shape[1] for fed in model.fed] == [4, 1, 1, 4, 1, 1]


@pytest.mark.parametrize("missing", ["layers", "block", "crop"])
def test_a_model_that_cannot_is_refused(missing: str) -> None:
    model = TinyModel()
    model.supports -= {missing}
    with pytest.raises(
        UnsupportedError, match=f"the cache 'prefix' needs .* this model .*{missing}"
    ):
        Pipeline(model, cache=Prefix())


def test_models_do_not_share() -> None:
    cache = Prefix()
    one, other = Spy(seed=1), Spy(seed=2)
    for model in (one, other, one, other):
        check(model, cache, [ids(20)])
    assert one.taken()[0] == other.taken()[0] == 20
    assert cache.stats(one)[:3] == cache.stats(other)[:3] == (1, 19, 1)


def test_a_model_can_be_freed_with_its_prefixes() -> None:
    cache, model = Prefix(), TinyModel()
    run(model, cache, [ids(20)])
    assert len(cache._shelves._shelves) == 1
    del model
    gc.collect()
    assert len(cache._shelves._shelves) == 0


def test_changed_weights_begin_anew() -> None:
    model, cache = Spy(), Prefix()
    check(model, cache, [ids(20)])
    model.layers[1]["k"].mul_(1.5)
    model.taken()
    check(model, cache, [ids(20)])
    assert model.taken()[0] == 20
    check(model, cache, [ids(20)])
    assert model.taken()[0] == 1
    assert cache.stats(model) == (1, 19, 1, 23 * PER_TOKEN)


def test_a_spec_is_its_options_whatever_it_has_stored() -> None:
    model, cache = TinyModel(), Prefix(max_bytes=10**6)
    run(model, cache, [ids(20)])
    copies = [copy.copy(cache), copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))]
    for other in (*copies, cache.model_copy(), Prefix(max_bytes=10**6)):
        assert other == cache
        assert hash(other) == hash(cache)
        assert other.stats(model).num_entries == 0
    assert cache.stats(model).num_entries == 1
    assert cache != Prefix(max_bytes=10**6 + 1)
    assert "shel" not in repr(cache)


@pytest.mark.parametrize("max_bytes", [0, -1, "much", True])
def test_options_are_checked(max_bytes: Any) -> None:
    with pytest.raises(OptionError, match="max_bytes"):
        Prefix(max_bytes=max_bytes)


def test_a_round_number_may_be_written_as_a_float() -> None:
    assert Prefix(max_bytes=4e9).max_bytes == 4_000_000_000


def test_threads_share_one_pipeline() -> None:
    model, cache = TinyModel(), Prefix(max_bytes=120 * PER_TOKEN)
    shared = pipeline(model, cache, 6)
    prompts = [[*ids(20 + i % 5), *ids(1 + i, seed=i)] for i in range(12)]
    expected = [pipeline(model, Dynamic(), 6).generate(p).token_ids for p in prompts]
    wrong: list[Any] = []

    def work(offset: int) -> None:
        try:
            for i in range(24):
                k = (i * 5 + offset) % len(prompts)
                found = shared.generate(prompts[k]).token_ids
                if found != expected[k]:
                    wrong.append((k, found))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.stats(model).num_hits > 48
    assert cache.stats(model).num_bytes <= 120 * PER_TOKEN


def test_inference_mode_leaves_nothing_that_others_cannot_use() -> None:
    model, cache = Spy(), Prefix()
    with torch.inference_mode():
        check(model, cache, [ids(20)])
    model.taken()
    check(model, cache, [ids(20), ids(9)])
    check(model, cache, [ids(20)])
    assert model.taken()[0] == 1


class Spies(Backend):
    """Gives a model that takes down what it is fed."""

    type: Literal["spy"] = "spy"

    def load(self, **_: Any) -> Spy:
        return Spy()


class Plugin:
    name = "spies"

    @hookimpl
    def genkit_register_backends(self) -> list[type[Backend]]:
        return [Spies]


def test_a_recipe_shares_between_calls() -> None:
    kit = Kit(plugins=[Plugin()], entry_points=False)
    data = {
        "version": 1,
        "backend": {"type": "spy"},
        "cache": {"type": "prefix", "max_bytes": 1e8},
        "stop_criteria": [{"type": "max_new_tokens", "limit": 3}],
    }
    built = kit.build(data)
    assert built.parts.cache == Prefix(max_bytes=10**8)
    first = built.generate(ids(20))
    assert built.generate(ids(20)).token_ids == first.token_ids
    assert built.model.fed == [20, 1, 1, 1, 1, 1]
    assert built.parts.cache.stats(built.model).num_reused_tokens == 19


def test_models_that_compare_equal_are_kept_apart() -> None:
    class Alike(TinyModel):
        weights_version = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Alike)

        __hash__ = None  # type: ignore[assignment]

    cache = Prefix()
    prompt = list(range(20))
    for model in (Alike(0), Alike(9)):
        wanted = Pipeline(model, cache=NoCache()).generate(prompt, max_new_tokens=4)
        given = Pipeline(model, cache=cache).generate(prompt, max_new_tokens=4)
        assert given.token_ids == wanted.token_ids


def test_weights_written_to_behind_pytorchs_back_begin_anew() -> None:
    model = TinyModel()
    cache = Prefix()
    prompt = list(range(20))
    Pipeline(model, cache=cache).generate(prompt, max_new_tokens=4)
    for layer in model.layers:
        layer["k"].data.mul_(1.5)
    given = Pipeline(model, cache=cache).generate(prompt, max_new_tokens=4)
    wanted = Pipeline(model, cache=NoCache()).generate(prompt, max_new_tokens=4)
    assert given.token_ids == wanted.token_ids


def test_rows_that_were_moved_without_the_cache_are_not_stored() -> None:
    """A decoder may be interrupted between the state and the cache."""
    model, prompts = TinyModel(0), [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]

    def interrupted(model, manager, processors, sampler, stop_criteria, state):
        cache = manager.acquire(model, state)
        try:
            model(state.since(cache.length), cache)
            state.append(torch.tensor([7, 8]))
            state.reorder([1, 0])
            raise KeyboardInterrupt
            yield
        finally:
            manager.release(cache, state)

    cache = Prefix()
    with pytest.raises(KeyboardInterrupt):
        Pipeline(model, cache=cache, decoder=interrupted).generate(prompts, max_new_tokens=4)
    wanted = Pipeline(model).generate(prompts, max_new_tokens=4)
    found = Pipeline(model, cache=cache).generate(prompts, max_new_tokens=4)
    assert [row.token_ids for row in found] == [row.token_ids for row in wanted]


def test_a_model_that_cannot_be_watched_is_named() -> None:
    class Unwatched:
        __slots__ = ("inner",)

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, attribute):
            return getattr(self.inner, attribute)

        def __call__(self, input_ids, cache):
            return self.inner(input_ids, cache)

    pipeline = Pipeline(Unwatched(TinyModel(0)), cache=Prefix())
    with pytest.raises(UnsupportedError, match="Unwatched cannot be watched.*__weakref__"):
        pipeline.generate([1, 2, 3], max_new_tokens=2)
