"""Every form of graph gives what its model gives, however it is fed and whoever keeps its past."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import graphs
from genkit import Pipeline, caches, samplers, stopping
from genkit.core.contracts import Model
from genkit.core.loop import autoregressive
from genkit.errors import UnsupportedError
from genkit.inspect.score import score
from genkit.testing import ByteTokenizer
from graphs import LAYOUTS, RAGGED, SHARED, Form

TOLERANCE = 1e-4  # float32, logits of order 10
STEPS = 8
EXACT: dict[str, Any] = {
    "none": caches.NoCache,
    "dynamic": caches.Dynamic,
    "static": caches.Static,
    "prefix": caches.Prefix,
}
every_layout = pytest.mark.parametrize("name", LAYOUTS)
ragged_layouts = pytest.mark.parametrize("name", RAGGED)


@functools.cache
def reference(embedding: Any, windows: Any, ids: tuple[int, ...]) -> torch.Tensor:
    return graphs.logits(ids, Form(embedding=embedding, windows=windows))


def expected(name: str, ids: Sequence[int]) -> torch.Tensor:
    """Logits at each position of a row, `[len(ids), vocab_size]`."""
    return reference(LAYOUTS[name].embedding, LAYOUTS[name].windows, tuple(ids))


def expected_tokens(name: str, ids: Sequence[int], steps: int) -> list[int]:
    row = list(ids)
    for _ in range(steps):
        row.append(int(expected(name, row)[-1].argmax()))
    return row[len(ids) :]


def limited(model: Any, steps: int = STEPS, **parts: Any) -> Pipeline:
    return Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=steps)], **parts)


def tokens(model: Any, prompts: Any, steps: int = STEPS, **parts: Any) -> list[list[int]]:
    return [list(each.token_ids) for each in limited(model, steps, **parts).generate(prompts)]


def managers_of(name: str) -> list[str]:
    """The exact managers that a form works with."""
    supports = graphs.shared(name).supports
    return [each for each, make in EXACT.items() if make.requires <= supports]


# --- the same tokens and logits ----------------------------------------------------------


@every_layout
def test_the_model_keeps_the_contract(name: str) -> None:
    model = graphs.shared(name)
    assert isinstance(model, Model)
    assert (model.vocab_size, model.context_length) == (graphs.VOCAB_SIZE, graphs.CONTEXT_LENGTH)
    assert (model.device.type, model.provider) == ("cpu", "CPUExecutionProvider")
    claims = {"crop", "block"}
    if name != "one_row":
        claims.add("reorder")
    if name in RAGGED:
        claims.add("ragged")
    if name != "no_past":
        claims.add("layers")
    if name in SHARED:
        claims.add("static")
    elif name != "no_past" and LAYOUTS[name].positions == "given":
        claims.add("positions")
    assert model.supports == claims


@every_layout
def test_tokens_and_logits_are_those_of_the_model(name: str, lab: Any) -> None:
    ids = lab.prompt(9)
    steps = list(limited(graphs.shared(name), 16).decode([ids]))
    chosen = [int(step.next_ids[0]) for step in steps]
    along = expected(name, [*ids, *chosen])[len(ids) - 1 : -1]
    given = torch.stack([step.raw_logits[0] for step in steps])
    assert given.dtype == (torch.float64 if name == "float64" else torch.float32)
    assert (given - along).abs().max() < (1e-9 if name == "float64" else TOLERANCE)
    assert chosen == expected_tokens(name, ids, 16)


@every_layout
def test_every_length_of_a_prompt(name: str, lab: Any) -> None:
    model = graphs.shared(name)
    ids = lab.prompt(42)
    for length in range(1, 41):
        given = lab.logits_along(model, [ids[:length]], torch.tensor([ids[length : length + 2]]))
        assert (given[0] - expected(name, ids)[length - 1 : length + 1]).abs().max() < TOLERANCE


@every_layout
def test_without_a_cache_the_tokens_are_the_same(name: str, lab: Any) -> None:
    ids = lab.prompt(7)
    cached = lab.greedy(graphs.shared(name), [ids], STEPS)
    assert cached == [expected_tokens(name, ids, STEPS)]
    assert lab.greedy(graphs.shared(name), [ids], STEPS, lab.Forgetful()) == cached


@pytest.mark.parametrize("chunk", [1, 2, 7])
@every_layout
def test_a_prompt_that_is_fed_in_pieces(name: str, chunk: int, lab: Any) -> None:
    model = graphs.load(name, prefill_chunk=chunk)
    ids = lab.prompt(20)
    prompts = [ids[:17], ids[:3], ids[:10]] if name in RAGGED else [ids[:17]]
    given = lab.logits_along(model, prompts, torch.tensor([ids[17:]] * len(prompts)))
    for row, prompt in zip(given, prompts, strict=True):
        along = expected(name, [*prompt, *ids[17:]])[len(prompt) - 1 : -1]
        assert (row - along).abs().max() < TOLERANCE


# --- rows ---------------------------------------------------------------------------------


@ragged_layouts
def test_every_number_of_pads_gives_the_same_logits(name: str, lab: Any) -> None:
    """ONNX-01. One batch has rows with 0 to 33 pads: each is what it is alone."""
    prompts = [lab.prompt(length, length) for length in range(1, 35)]
    follow = lab.prompt(3)
    given = lab.logits_along(graphs.shared(name), prompts, torch.tensor([follow] * len(prompts)))
    for row, prompt in zip(given, prompts, strict=True):
        along = expected(name, [*prompt, *follow])[len(prompt) - 1 : -1]
        assert (row - along).abs().max() < TOLERANCE, len(prompt)


@every_layout
def test_rows_of_one_length_or_of_several(name: str, lab: Any) -> None:
    """Where a form cannot run rows together, they run one after the other."""
    prompts = [lab.prompt(n, n) for n in (6, 3, 6, 11)]
    for batch in (prompts, prompts[::2]):
        assert tokens(graphs.shared(name), batch) == [
            expected_tokens(name, ids, STEPS) for ids in batch
        ]


@pytest.mark.parametrize("name", ["unmasked", "cache_position", "unpositioned", "by_column"])
def test_padded_rows_are_refused_where_padding_cannot_be_told(name: str, lab: Any) -> None:
    """ONNX-01, ONNX-07: a graph without a mask, or with positions that do not follow it.

    `by_column` gives the right logits, but keys that cannot be given to a row with other padding.
    """
    model = graphs.shared(name)
    state = lab.state_of(model, [lab.prompt(5), lab.prompt(3)])
    with pytest.raises(UnsupportedError, match="cannot run rows of different lengths together"):
        model(state.token_ids, model.new_cache(state))


class _Limits:
    """Ends each row at a length of its own."""

    finish_reason = "length"

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = torch.tensor(limits)

    def __call__(self, state: Any) -> torch.Tensor:
        return state.num_generated >= self.limits[state.rows]


@ragged_layouts
def test_rows_end_at_different_times(name: str, lab: Any) -> None:
    limits = [5, 1, 9, 2, 3]
    prompts = [lab.prompt(n, n) for n in (4, 12, 7, 1, 9)]
    model = graphs.shared(name)
    found: list[list[int]] = [[] for _ in prompts]
    state = lab.state_of(model, prompts)
    for step in autoregressive(
        model, lab.Plain(), [], lambda _, x: x.argmax(-1), [_Limits(limits)], state
    ):
        for row, token_id in zip(step.rows.tolist(), step.next_ids.tolist(), strict=True):
            found[row].append(token_id)
    assert found == [
        expected_tokens(name, ids, limit) for ids, limit in zip(prompts, limits, strict=True)
    ]


@ragged_layouts
def test_reorder_moves_rows_with_their_past(name: str, lab: Any) -> None:
    """Rows are dropped, repeated and permuted, more than once, with steps between."""
    model = graphs.shared(name)
    rows = [lab.prompt(12), lab.prompt(5, 1), lab.prompt(9, 2)]
    state = lab.state_of(model, rows)
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    for order in ([2, 0, 2], [1, 2, 0, 1], [3], [0, 0]):
        width = state.token_ids.shape[1]
        state.reorder(order)
        cache.reorder(order)
        next_ids = [7 * i + 5 for i in range(len(order))]
        rows = [[*rows[i], token_id] for i, token_id in zip(order, next_ids, strict=True)]
        state.append(torch.tensor(next_ids))
        given = model(state.token_ids[:, cache.length :], cache)
        for row, logits in zip(rows, given, strict=True):
            assert (logits - expected(name, row)[-1]).abs().max() < TOLERANCE
        assert state.token_ids.shape[1] == width + 1


@ragged_layouts
@pytest.mark.parametrize("fed", [0, 4])
@pytest.mark.parametrize("order", [[1, 0], [1], [0, 0, 1]])
def test_rows_of_an_empty_cache_are_moved(name: str, fed: int, order: list[int], lab: Any) -> None:
    """Whether nothing was fed yet, or all of it was forgotten."""
    model = graphs.shared(name)
    rows = [lab.prompt(6), lab.prompt(3, 1)]
    state = lab.state_of(model, rows)
    cache = model.new_cache(state)
    if fed:
        model(state.token_ids[:, :fed], cache)
        cache.crop(0)
    state.reorder(order)
    cache.reorder(order)
    given = model(state.token_ids[:, cache.length :], cache)
    for i, logits in zip(order, given, strict=True):
        assert (logits - expected(name, rows[i])[-1]).abs().max() < TOLERANCE


# --- crop, blocks, the last positions ----------------------------------------------------


@every_layout
def test_crop_leaves_no_trace(name: str, lab: Any) -> None:
    model = graphs.shared(name)
    ids, other = lab.prompt(30), lab.prompt(30, 1)
    cache = model.new_cache(lab.state_of(model, [ids]))
    model(torch.tensor([other]), cache)
    cache.crop(0)
    model(torch.tensor([ids]), cache)
    for length in (21, 8, 3, 0):
        cache.crop(length)
        model(torch.tensor([other[length:29]]), cache)
        cache.crop(length)
        given = model(torch.tensor([ids[cache.length : 25]]), cache)
        assert (given[0] - expected(name, ids[:25])[-1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", [n for n in LAYOUTS if LAYOUTS[n].past != "none"])
def test_a_cropped_cache_shows_what_is_left(name: str, lab: Any) -> None:
    model = graphs.shared(name)
    state = lab.state_of(model, [lab.prompt(9)])
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    before = [tensor.clone() for layer in cache.layers for tensor in layer]
    cache.crop(4)
    after = [tensor for layer in cache.layers for tensor in layer]
    assert all(map(torch.equal, after, (tensor[:, :, :4] for tensor in before)))


@ragged_layouts
def test_padded_rows_are_cropped_together(name: str, lab: Any) -> None:
    """Down to columns where some rows have not begun."""
    model = graphs.shared(name)
    prompts = [lab.prompt(12), lab.prompt(5, 1), lab.prompt(1, 2)]
    state = lab.state_of(model, prompts)
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    for length in range(11, -1, -1):
        cache.crop(length)
        model((state.token_ids[:, length:] + 1) % graphs.VOCAB_SIZE, cache)
        cache.crop(length)
        given = model(state.token_ids[:, cache.length :], cache)
        for prompt, logits in zip(prompts, given, strict=True):
            assert (logits - expected(name, prompt)[-1]).abs().max() < TOLERANCE, length


@pytest.mark.parametrize("name", [name for name in RAGGED if not LAYOUTS[name].last_only])
def test_the_last_positions(name: str, lab: Any) -> None:
    """At the beginning, and on top of a past; places of padding may hold anything."""
    model = graphs.shared(name)
    prompts = [lab.prompt(12), lab.prompt(7, 1), lab.prompt(9, 2)]
    state = lab.state_of(model, prompts)
    for first, n in itertools.product((0, 3, 6), (1, 2, 5)):
        cache = model.new_cache(state)
        if first:
            model(state.token_ids[:, :first], cache)
        fed = state.token_ids[:, cache.length :]
        given = model.last(fed, cache, n)
        assert given.shape == (3, n, graphs.VOCAB_SIZE)
        for prompt, logits in zip(prompts, given, strict=True):
            assert (logits - expected(name, prompt)[-n:]).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", [name for name, form in LAYOUTS.items() if not form.last_only])
def test_score_gives_the_log_probability_of_a_text(name: str, lab: Any) -> None:
    ids = lab.prompt(140)  # more than one block of positions
    logprobs = expected(name, ids).log_softmax(-1)[:-1]
    wanted = float(logprobs.gather(1, torch.tensor(ids[1:])[:, None]).sum())
    assert score(graphs.shared(name), ids).logprob == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("name", ["last_only", "shared_last"])
def test_score_needs_logits_of_all_positions(name: str, lab: Any) -> None:
    assert not hasattr(graphs.shared(name), "last")
    with pytest.raises(UnsupportedError, match=r"those of the last one only \(it has no `last`\)"):
        score(graphs.shared(name), lab.prompt(9))


@pytest.mark.parametrize("name", ["kept", "kept_list", "shared_kept"])
def test_generation_asks_for_the_logits_of_one_position(name: str, lab: Any) -> None:
    """ONNX-22: such a graph gives NaN if it is asked for more than one."""
    form = LAYOUTS[name].with_(most_kept=1)
    model = graphs.load(form)
    ids = lab.prompt(200)
    assert tokens(model, [ids, ids[:50]], 2) == [
        expected_tokens(name, row, 2) for row in (ids, ids[:50])
    ]
    cache = model.new_cache(lab.state_of(model, [ids]))
    assert model.last(torch.tensor([ids]), cache, 2).isnan().all()


def test_a_merged_graph_is_told_whether_there_is_a_past(lab: Any) -> None:
    """ONNX-05: false at the first step, with a past of length 0, and true from then on."""
    model = graphs.shared("merged")
    ids = lab.prompt(6)
    assert tokens(model, [ids], 3) == [expected_tokens("merged", ids, 3)]

    # The graph notices: told otherwise it gives NaN.
    fed: dict[str, Any] = {
        "input_ids": np.array([ids], np.int32),
        "attention_mask": np.ones((1, 6), np.int32),
        "position_ids": np.arange(6)[None],
    }
    for ports in model.graph.past:
        shape = 1, graphs.NUM_KV_HEADS, 0, graphs.HEAD_DIM
        fed[ports.past.name] = np.empty(shape, np.float32)
    for has_past in (False, True):
        logits = model.session.run(["logits"], {**fed, "use_cache_branch": np.array([has_past])})[0]
        assert bool(np.isnan(logits).all()) is has_past


# --- cache managers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "manager"),
    [(name, manager) for name in LAYOUTS for manager in EXACT],
)
def test_every_exact_manager_gives_the_same_tokens_or_is_refused(
    name: str, manager: str, lab: Any
) -> None:
    model = graphs.shared(name)
    prompts = [lab.prompt(n, n) for n in (6, 2, 13)]
    if manager not in managers_of(name):
        with pytest.raises(UnsupportedError, match=f"the cache '{manager}' needs what this model"):
            limited(model, cache=EXACT[manager]())
        return
    wanted = [expected_tokens(name, ids, STEPS) for ids in prompts]
    cache = EXACT[manager]()
    for _ in range(2):  # the second time a prefix is found
        assert tokens(model, prompts, cache=cache) == wanted
    longer = [[*ids, *more] for ids, more in zip(prompts, wanted, strict=True)]
    assert tokens(model, longer, 2, cache=cache) == [
        expected_tokens(name, ids, 2) for ids in longer
    ]


def test_which_managers_serve_which_forms() -> None:
    """The test above would not notice a form that has lost a capability."""
    everything = ["none", "dynamic", "static", "prefix"]
    for name in LAYOUTS:
        without = {"static"} if name not in SHARED else set()
        if name == "no_past":
            without.add("prefix")
        assert managers_of(name) == [each for each in everything if each not in without]


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "no_past"])
def test_keys_of_eight_bits_are_nearly_the_keys(name: str, lab: Any) -> None:
    manager = caches.Quantized(bits=8, group_size=4)
    ids = lab.prompt(16)
    along = expected(name, ids)[8:-1]
    model = graphs.shared(name)
    state = lab.state_of(model, [ids[:9]])
    cache = manager.acquire(model, state)
    steps = []
    for token_id in ids[9:]:
        steps.append(model(state.token_ids[:, cache.length :], cache)[0])
        state.append(torch.tensor([token_id]))
    worst = (torch.stack(steps) - along).abs().max()
    assert 0 < worst < 0.5  # nothing is rounded until the prompt has been read


@pytest.mark.parametrize("name", [name for name in RAGGED if LAYOUTS[name].positions == "given"])
def test_sinks_and_a_window(name: str, lab: Any) -> None:
    """Prompts are read whole; later tokens see the first two and the last four before them."""
    model = graphs.shared(name)
    manager = caches.SinkWindow(num_sinks=2, window=4)
    if "layers" not in model.supports or name in SHARED:
        with pytest.raises(UnsupportedError, match="the cache 'sink_window' needs what this model"):
            Pipeline(model, cache=manager)
        return
    prompts = [lab.prompt(n, n) for n in (10, 3, 6)]
    given = list(limited(model, 8, cache=manager).decode(prompts))
    for i, prompt in enumerate(prompts):
        row = [*prompt, *(int(step.next_ids[i]) for step in given)]
        places = torch.arange(len(row) - 1)
        from_, to = places[:, None], places[None, :]
        seen = (to <= from_) & ((from_ < len(prompt)) | (to < 2) | (to >= from_ - 4))
        along = graphs.logits(row[:-1], LAYOUTS[name], seen)[len(prompt) - 1 :]
        steps = torch.stack([step.raw_logits[i] for step in given])
        assert (steps - along).abs().max() < TOLERANCE
        whole = expected(name, row[:-1])[len(prompt) - 1 :]
        assert (along - whole).abs().max() > 0.1


@pytest.mark.parametrize("manager", ["quantized", "prefix"])
def test_a_graph_that_keeps_nothing_has_no_keys_to_manage(manager: str) -> None:
    make = {"quantized": caches.Quantized, "prefix": caches.Prefix}[manager]
    with pytest.raises(UnsupportedError, match=rf"'{manager}' .*this model.*layers"):
        Pipeline(graphs.shared("no_past"), cache=make())


def test_a_graph_of_one_row_is_given_one_row(lab: Any) -> None:
    model = graphs.shared("one_row")
    state = lab.state_of(model, [lab.prompt(4), lab.prompt(4, 1)])
    with pytest.raises(UnsupportedError, match="takes one row at a time"):
        model(state.token_ids, model.new_cache(state))


# --- streams and threads -----------------------------------------------------------------


@pytest.mark.parametrize("past", ["optimum", "shared"])
def test_a_stream_is_the_text_piece_by_piece(past: Any) -> None:
    positions: Any = "columns" if past == "shared" else "given"
    form = Form(past=past, positions=positions, vocab_size=ByteTokenizer.vocab_size)
    pipeline = limited(graphs.load(form), 12, tokenizer=ByteTokenizer())
    whole = pipeline.generate("Hello")
    chunks = list(pipeline.stream("Hello"))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert list(whole.token_ids) == graphs.greedy(list(b"Hello"), 12, form)
    pipeline.stream("Hello").close()
    assert pipeline.generate("Hello").token_ids == whole.token_ids


QUICK = ("optimum", "merged", "no_past", "shared", "shared_kept", "one_row")


@pytest.mark.parametrize(
    ("name", "manager"),
    [
        pytest.param(name, manager, marks=[] if name in QUICK else pytest.mark.slow)
        for name, form in LAYOUTS.items()
        for manager in ("dynamic", "static", "prefix")
        if not (manager == "static" and name not in SHARED)
        and not (manager == "prefix" and form.past == "none")
    ],
)
def test_twenty_threads_share_a_pipeline(name: str, manager: str, lab: Any) -> None:
    pipeline = limited(graphs.shared(name), 4, cache=EXACT[manager](), sampler=samplers.Greedy())
    prompts = [[lab.prompt(3 + i % 5, i), lab.prompt(2 + i % 3, i)] for i in range(20)]
    barrier = threading.Barrier(20)
    found: list[Any] = [None] * 20

    def work(i: int) -> None:
        barrier.wait()
        found[i] = [list(each.token_ids) for each in pipeline.generate(prompts[i])]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[expected_tokens(name, ids, 4) for ids in pair] for pair in prompts]
