"""Every architecture with every cache manager, against one plain forward pass of the bare module.

`sweep.py` says what a cell is, and `docs/laws.md` what all of this amounts to.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sweep
import zoo
from genkit import Pipeline, caches
from genkit.backends import PyTorch
from genkit.core.contracts import CAPABILITIES
from genkit.errors import UnsupportedError
from genkit.testing import ByteTokenizer

MANAGERS: dict[str, Any] = {
    "none": caches.NoCache(),
    "dynamic": caches.Dynamic(),
    "static": caches.Static(),
    "prefix": caches.Prefix(),
    "quantized": caches.Quantized(bits=4, group_size=4),
    "sink_window": caches.SinkWindow(num_sinks=2, window=9),
}
EXACT = [name for name, manager in MANAGERS.items() if manager.grade == "exact"]
LOSSY = [name for name, manager in MANAGERS.items() if manager.grade == "lossy"]
ATTENTION_ALONE = {"crop", "reorder", "block", "layers", "static"}

# The first length of a cell. Those of its rows cross the edges of a window of 8 tokens, and its
# columns those of the memory, which has room for 64 of them at first and doubles.
LENGTHS = {
    "none": (1, 8, 31),
    "dynamic": (1, 7, 8, 9, 15, 16, 17, 31, 32, 63, 64, 96, 128),
    "static": (7, 16, 31, 64, 128),
    "prefix": (128, 7, 64, 31, 96),
}


def name_of(manager: Any) -> str:
    return str(manager.type_name())


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Any:
    """Counts what a test compares; too many excuses prove nothing."""
    tally = sweep.Tally()
    yield tally
    assert tally.excused <= 0.01 * tally.decisions
    record_property("combinations", tally.combinations)


def is_swept(name: str, manager: str) -> bool:
    if manager == "sink_window" and name not in zoo.FULL:
        return False
    # Its attention cannot be computed in float64.
    return name != "xglm" or manager in EXACT


def pair(managers: list[str], architectures: dict[str, Any] = zoo.ATTENTION) -> Any:
    """Every architecture with those of these managers that serve it."""
    return pytest.mark.parametrize(
        ("name", "manager"),
        [
            pytest.param(name, MANAGERS[manager], id=f"{name}-{manager}")
            for name in architectures
            for manager in managers
            if is_swept(name, manager)
        ],
    )


# --- what each architecture and manager can do -------------------------------------------


@pytest.mark.parametrize("name", zoo.ALL)
def test_what_an_architecture_supports(name: str) -> None:
    supports = zoo.shared(name).supports
    if name in zoo.FULL:
        assert supports == set(CAPABILITIES)
    elif name in zoo.COUNTING:
        assert supports == set(CAPABILITIES) - {"positions"}
    elif name in zoo.ONE_LENGTH:
        assert supports == ATTENTION_ALONE
    else:
        assert supports == set()


def test_every_manager_is_swept() -> None:
    assert {name_of(getattr(caches, name)) for name in caches.__all__} == set(MANAGERS)


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("name", zoo.ALL)
def test_a_pair_that_cannot_work_is_refused_before_the_first_token(name: str, manager: str) -> None:
    served = (
        manager in ("none", "dynamic")
        or (manager == "sink_window" and name in zoo.FULL)
        or (manager != "sink_window" and name not in zoo.RECURRENT)
    )
    if served:
        Pipeline(zoo.shared(name), cache=MANAGERS[manager])
    else:
        with pytest.raises(UnsupportedError, match=f"the cache '{manager}' .* this model"):
            Pipeline(zoo.shared(name), cache=MANAGERS[manager])


@pytest.mark.parametrize("name", zoo.ONE_LENGTH | zoo.RECURRENT)
def test_rows_of_different_lengths_run_one_after_the_other(name: str) -> None:
    model = zoo.shared(name)
    prompts = [zoo.prompt(5), zoo.prompt(3)]
    padded = sweep.start(torch.tensor(prompts[0]), [5, 3])
    with pytest.raises(UnsupportedError, match="different lengths"):
        model(padded.token_ids, model.new_cache(padded))
    together = Pipeline(model).generate(prompts, max_new_tokens=4)
    alone = [Pipeline(model).generate(ids, max_new_tokens=4) for ids in prompts]
    assert [row.token_ids for row in together] == [row.token_ids for row in alone]


def test_eager_attention_in_float64_runs_rows_one_after_the_other() -> None:
    """Its padded places would be NaN."""
    model = zoo.shared("gemma2", torch.float64)
    assert "ragged" not in model.supports
    prompts = [zoo.prompt(9), zoo.prompt(5)]
    together = Pipeline(model).generate(prompts, max_new_tokens=4)
    for ids, row in zip(prompts, together, strict=True):
        assert row.token_ids == Pipeline(zoo.shared("gemma2")).generate(
            ids, max_new_tokens=4
        ).token_ids  # fmt: skip


# --- the sweep ---------------------------------------------------------------------------


@pair(EXACT)
def test_every_number_of_pads(name: str, manager: Any, tally: sweep.Tally) -> None:
    """Lengths 7 to 40, fed in pieces and cut back, rows dropped, repeated and permuted."""
    for first in (7,) if name_of(manager) in ("none", "static") else (30, 7):
        lengths = range(first, first + sweep.NUM_ROWS)
        sweep.sweep_cell(name, manager, lengths, tally, pieces=(1, 8, 7), moving=first == 7)


@pair(LOSSY)
def test_a_lossy_row_is_the_row_alone(name: str, manager: Any, tally: sweep.Tally) -> None:
    lengths = [7, 40]
    if "ragged" in zoo.shared(name, torch.float64).supports:
        sweep.sweep_cell(name, manager, lengths, tally, moving=True)
    else:
        for n in lengths:
            sweep.sweep_cell(name, manager, [n] * 3, tally, moving=True)


@pair([*EXACT, "quantized"], zoo.ONE_LENGTH)
def test_models_that_cannot_pad(name: str, manager: Any, tally: sweep.Tally) -> None:
    for n in (1, 9, 30):
        sweep.sweep_cell(name, manager, [n] * 3, tally, moving=True)
        if manager.grade == "exact":
            sweep.sweep_cell(name, manager, [n], tally, pieces=(1, 8, 7))


@pair(["none", "dynamic"], zoo.RECURRENT)
def test_recurrent_models(name: str, manager: Any, tally: sweep.Tally) -> None:
    for n in (1, 7, 9, 17):
        sweep.sweep_cell(name, manager, [n], tally)


@pytest.mark.slow
@pair(EXACT)
def test_every_length_at_the_edges(name: str, manager: Any, tally: sweep.Tally) -> None:
    for i, first in enumerate(LENGTHS[name_of(manager)]):
        lengths = range(first, first + sweep.NUM_ROWS)
        pieces = ((), (13,), (1, 1, 31), (64, 1))[i % 4]
        sweep.sweep_cell(name, manager, lengths, tally, pieces=pieces, moving=i % 3 == 1)
    if name_of(manager) == "prefix":
        assert manager.stats(zoo.shared(name)).num_hits > 100


@pytest.mark.slow
@pair(LOSSY)
def test_a_lossy_row_is_the_row_alone_with_every_number_of_pads(
    name: str, manager: Any, tally: sweep.Tally
) -> None:
    """Lengths 9 to 42, and every third to 80: past a window and the memory's first size."""
    for lengths in (range(9, 9 + sweep.NUM_ROWS), range(47, 81, 3)):
        if "ragged" in zoo.shared(name, torch.float64).supports:
            sweep.sweep_cell(name, manager, lengths, tally, moving=True)
        else:
            for n in lengths:
                sweep.sweep_cell(name, manager, [n], tally)


class Misplaced(caches.Dynamic):
    """Says that every row begins one column earlier than it does."""

    def acquire(self, model: Any, state: Any) -> Any:
        cache = model.new_cache(state)
        cache._set_starts([max(0, start - 1) for start in state.starts.tolist()])
        return cache


class Late(caches.Dynamic):
    """Forgets the last column that it was told of."""

    def acquire(self, model: Any, state: Any) -> Any:
        cache = model.new_cache(state)
        crop = cache.crop
        cache.crop = lambda length: crop(max(0, length - 1)) or cache.advance(1)
        return cache


@pytest.mark.parametrize("manager", [Misplaced(), Late()], ids=["misplaced", "late"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "opt"])
def test_the_sweep_notices_a_manager_that_is_wrong_by_one_column(name: str, manager: Any) -> None:
    with pytest.raises(AssertionError, match="tolerances"):
        sweep.sweep_cell(name, manager, range(7, 7 + sweep.NUM_ROWS), sweep.Tally(), moving=True)


# --- windows and holes, with masks that say what is seen ---------------------------------


def mask_of(visible: torch.Tensor) -> torch.Tensor:
    """What is added to the scores, `[1, 1, queries, keys]`."""
    least = torch.finfo(torch.float32).min
    return torch.zeros(1, 1, *visible.shape).masked_fill(~visible, least)


def logits_under(name: str, ids: torch.Tensor, mask: Any) -> torch.Tensor:
    with torch.no_grad():
        return zoo.shared(name).module(
            ids[None], attention_mask=mask, position_ids=torch.arange(len(ids))[None]
        ).logits[0]  # fmt: skip


@pytest.mark.parametrize("name", [n for n in zoo.COUNTING if n not in ("bloom", "falcon_alibi")])
def test_a_window_is_a_band(name: str, tally: sweep.Tally) -> None:
    """CACHE-05, CACHE-06: position i sees min(i + 1, 8) keys, itself among them.

    Every prompt length from 1 to 20 with 12 new tokens, with the mask written out.
    """
    ids = torch.tensor(zoo.prompt(34))
    back = torch.arange(34)[:, None] - torch.arange(34)
    chunk = torch.arange(34) // zoo.WINDOW
    masks: Any = {
        "full_attention": mask_of(back >= 0),
        "sliding_attention": mask_of((back >= 0) & (back < zoo.WINDOW)),
        "chunked_attention": mask_of((back >= 0) & (chunk[:, None] == chunk)),
    }
    if name in ("mistral", "starcoder2"):  # the same for all layers
        masks = masks["sliding_attention"]
    wanted = logits_under(name, ids, masks)
    model = zoo.shared(name)
    for manager in (MANAGERS["dynamic"], MANAGERS["static"]):
        for lengths in ([5], range(1, 21)):
            state = sweep.start(ids, lengths, steps=12)
            ends = torch.tensor(lengths)
            cache = manager.acquire(model, state)
            for step in range(12):
                given = model(state.since(cache.length), cache)
                tally.compare(given, wanted[ends + step - 1], f"{name}, {lengths=}, {step=}")
                state.append(ids[ends + step])
            tally.combinations += len(lengths)


@pytest.mark.parametrize("name", zoo.FULL)
def test_columns_left_out_are_as_if_masked(name: str, tally: sweep.Tally) -> None:
    """What the capability `positions` promises, and `sink_window` relies on."""
    ids = torch.tensor(zoo.prompt(40))
    visible = torch.ones(40, 40, dtype=torch.bool).tril()
    visible[20:, [0, 3, 4, 7]] = False
    wanted = logits_under(name, ids, mask_of(visible))
    model = zoo.shared(name)
    state = sweep.start(ids, [20], steps=20)
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    kept = torch.tensor([j for j in range(20) if visible[20, j]])
    for i, (keys, values) in enumerate(list(cache.layers)):
        cache.replace(i, keys[:, :, kept], values[:, :, kept], kept[None])
    given = model.last(ids[None, 20:], cache, 20)[0]
    tally.compare(given, wanted[20:], name)
    tally.combinations += 1
    assert (wanted[20:] - sweep.text_of(name)[1][20:40]).abs().max() > 0.1


# --- public reports ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "opt", "xglm", "biogpt", "gpt_bigcode", "rembert"])
def test_learned_positions_are_those_of_the_row(name: str) -> None:
    """POS-02: 4 and 7 tokens; moving a row by a column would be far off."""
    model = zoo.shared(name)
    ids, logits = sweep.text_of(name)
    state = sweep.start(ids, [4, 7])
    given = model(state.token_ids, model.new_cache(state))
    assert (given - logits[[3, 6]]).abs().max() < 1e-5
    with torch.no_grad():
        moved = model.module(ids[None, :4], position_ids=torch.arange(3, 7)[None]).logits[0, -1]
    assert (moved - logits[3]).abs().max() > 0.5


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.25)], ids=str
)
def test_pads_move_probabilities_by_rounding_only(dtype: torch.dtype, bound: float) -> None:
    """POS-05: 0 to 16 pads; the bound of bfloat16 is one on logits, of order 10."""
    model = zoo.shared("llama", dtype)
    ids = torch.tensor(zoo.prompt(21))
    alone = sweep.start(ids, [5])
    wanted = model(alone.token_ids, model.new_cache(alone))
    rows = []
    for pads in range(17):
        state = sweep.start(ids, [5, 5 + pads])
        rows.append(model(state.token_ids, model.new_cache(state))[0])
    given = torch.stack(rows)
    if dtype == torch.float32:
        given, wanted = given.softmax(-1), wanted.softmax(-1)
    assert (given - wanted).abs().max() < bound


def test_six_prompts_of_different_lengths_as_text_and_as_ids() -> None:
    """POS-07."""
    tokenizer = ByteTokenizer()
    module = zoo.build("llama", vocab_size=tokenizer.vocab_size)
    pipeline = Pipeline(PyTorch.wrap(module, tokenizer))
    prompts = ["a", "Hello", "once upon", "été", "42 is the answer", "The end of all things is"]
    alone = [pipeline.generate(text, max_new_tokens=12).token_ids for text in prompts]
    as_text = pipeline.generate(prompts, max_new_tokens=12)
    as_ids = pipeline.generate([tokenizer.encode(text) for text in prompts], max_new_tokens=12)
    assert [row.token_ids for row in as_text] == alone
    assert [row.token_ids for row in as_ids] == alone


def test_a_static_cache_serves_batches_of_any_size_in_turn() -> None:
    """CACHE-15: 8 rows, then 4, then 9."""
    model = zoo.shared("llama")
    static = Pipeline(model, cache=caches.Static())
    for num_rows in (8, 4, 9):
        prompts = [zoo.prompt(3 + i) for i in range(num_rows)]
        given = static.generate(prompts, max_new_tokens=8)
        wanted = Pipeline(model).generate(prompts, max_new_tokens=8)
        assert [row.token_ids for row in given] == [row.token_ids for row in wanted]


class Watched:
    """Remembers, weakly, each cache that another manager hands out."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.supports = inner.supports
        self.handed_out: list[weakref.ref[Any]] = []

    def acquire(self, model: Any, state: Any) -> Any:
        cache = self.inner.acquire(model, state)
        self.handed_out.append(weakref.ref(cache))
        return cache

    def release(self, cache: Any, state: Any) -> None:
        self.inner.release(cache, state)


@pytest.mark.parametrize("manager", MANAGERS)
def test_nothing_keeps_a_cache_after_its_run(manager: str) -> None:
    """CACHE-17: no reference is left, and the model has no new attribute."""
    model = zoo.shared("llama")
    watched = Watched(MANAGERS[manager])
    attributes = [set(vars(part)) for part in model.module.modules()]
    result = Pipeline(model, cache=watched).generate(zoo.prompt(5), max_new_tokens=4)
    gc.collect()
    assert len(result.token_ids) == 4
    assert [reference() for reference in watched.handed_out] == [None]
    assert [set(vars(part)) for part in model.module.modules()] == attributes
