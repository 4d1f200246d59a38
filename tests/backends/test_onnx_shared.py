"""The memory that a graph shares with genkit: nothing unwritten is read, and no step copies it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import graphs
from genkit import Pipeline, caches, stopping
from genkit.backends import onnx_shared, onnx_tensors
from genkit.errors import ModelOutputError
from graphs import LAYOUTS, SHARED

TOLERANCE = 1e-4
PROMPTS = [[5, 3, 9, 22, 1, 8], [4, 2], [7, 7, 30, 11]]


@pytest.fixture(params=["nan", "inf"])
def spoilt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is taken without being filled holds no numbers."""
    value = float(request.param)
    empty, new_empty = torch.empty, torch.Tensor.new_empty

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(value) if tensor.is_floating_point() else tensor.fill_(-(2**31))

    monkeypatch.setattr(torch, "empty", lambda *sizes, **more: fill(empty(*sizes, **more)))
    monkeypatch.setattr(
        torch.Tensor,
        "new_empty",
        lambda self, *sizes, **more: fill(new_empty(self, *sizes, **more)),
    )


@pytest.mark.usefixtures("spoilt")
@pytest.mark.parametrize("manager", [caches.Dynamic, caches.Prefix])
@pytest.mark.parametrize("name", ["optimum", "transformers", "kept", *SHARED])
def test_nothing_outside_the_valid_length_is_read(name: str, manager: Any) -> None:
    """ONNX-13: neither with an empty past nor behind what has been written."""
    model = graphs.load(name, prefill_chunk=4)
    pipeline = Pipeline(model, cache=manager(), stop_criteria=[stopping.MaxNewTokens(limit=6)])
    for prompts in (PROMPTS, [[*ids, 9] for ids in PROMPTS], PROMPTS[:1]):
        assert [list(each.token_ids) for each in pipeline.generate(prompts)] == [
            graphs.greedy(ids, 6, LAYOUTS[name]) for ids in prompts
        ]


@pytest.mark.usefixtures("spoilt")
@pytest.mark.parametrize("name", ["optimum", "shared"])
def test_rows_and_columns_that_were_dropped_are_not_read(name: str, lab: Any) -> None:
    model = graphs.load(name)
    state = lab.state_of(model, PROMPTS)
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    cache.crop(4)
    order = [2, 0]
    state.reorder(order)
    cache.reorder(order)
    given = model(state.token_ids[:, cache.length :], cache)
    for row, logits in zip(order, given, strict=True):
        assert (logits - graphs.logits(PROMPTS[row])[-1]).abs().max() < TOLERANCE


# --- masks --------------------------------------------------------------------------------


@pytest.mark.parametrize("mask_type", ["int64", "int32", "bool", "float32"])
def test_the_mask_is_as_wide_as_past_and_new_tokens(
    mask_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX-14: at every step, in the type of the graph."""
    for name in ("optimum", "shared"):
        model = graphs.load(LAYOUTS[name].with_(mask_type=mask_type))
        masks: list[tuple[tuple[int, ...], torch.dtype]] = []
        module = onnx_shared if name == "shared" else onnx_tensors
        bind = module.bind

        def watch(
            binding: Any, port: Any, tensor: torch.Tensor, bind: Any = bind, masks: Any = masks
        ) -> None:
            if port.name == "attention_mask":
                masks.append((tuple(tensor.shape), port.dtype))
            bind(binding, port, tensor)

        monkeypatch.setattr(module, "bind", watch)
        Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=4)]).generate(PROMPTS)
        dtype = getattr(torch, mask_type)
        assert masks == [((3, width), dtype) for width in (6, 7, 8, 9)]


# --- copies -------------------------------------------------------------------------------


def memories(cache: Any) -> list[int]:
    return [tensor.data_ptr() for layer in cache.layers for tensor in layer]


@pytest.mark.parametrize("name", SHARED)
def test_no_step_copies_a_buffer(name: str, lab: Any) -> None:
    """`layers` of rows without padding are views of it."""
    model = graphs.shared(name)
    state = lab.state_of(model, [lab.prompt(5), lab.prompt(5, 1)])
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    before = memories(cache)
    num_bytes = cache.num_bytes
    for _ in range(40):
        state.append(torch.tensor([3, 4]))
        model(state.token_ids[:, cache.length :], cache)
    cache.crop(9)
    model(state.token_ids[:, cache.length :], cache)  # a block on top of a past
    assert memories(cache) == before
    assert cache.num_bytes == num_bytes
    rows = 2 * state.max_length * graphs.NUM_KV_HEADS * graphs.HEAD_DIM
    assert num_bytes == rows * 2 * graphs.NUM_LAYERS * 4
    cache.reorder([1])
    after = memories(cache)
    assert cache.num_bytes == num_bytes // 2
    state.reorder([1])
    state.append(torch.tensor([3]))
    model(state.token_ids[:, cache.length :], cache)
    assert memories(cache) == after


def test_the_memory_is_taken_with_the_first_forward(lab: Any) -> None:
    model = graphs.shared("shared")
    state = lab.state_of(model, PROMPTS)
    cache = model.new_cache(state)
    assert (cache.num_bytes, list(cache.layers)) == (0, [])
    model(state.token_ids, cache)
    assert cache.num_bytes > 0
    cache.crop(0)
    assert all(keys.shape[2] == 0 for keys, _ in cache.layers)


@pytest.mark.parametrize("name", ["optimum", "transformers", "shared", "shared_positions"])
def test_layers_are_right_aligned_and_can_be_put_back(name: str, lab: Any) -> None:
    """Each slot has the key of its column, whatever the padding; putting them back is no change."""
    model = graphs.shared(name)
    state = lab.state_of(model, PROMPTS)
    cache = model.new_cache(state)
    model(state.token_ids, cache)
    assert len(cache.layers) == graphs.NUM_LAYERS
    for i, ids in enumerate(PROMPTS):
        alone = model.new_cache(one := lab.state_of(model, [ids]))
        model(one.token_ids, alone)
        for layer, own in zip(cache.layers, alone.layers, strict=True):
            for tensor, wanted in zip(layer, own, strict=True):
                assert tensor.shape == (3, graphs.NUM_KV_HEADS, 6, graphs.HEAD_DIM)
                assert (tensor[i, :, -len(ids) :] - wanted[0]).abs().max() < TOLERANCE
    held = [(keys.clone(), values.clone()) for keys, values in cache.layers]
    other = model.new_cache(state)
    other.advance(6)
    for i, layer in enumerate(held):
        other.replace(i, *layer)
    next_ids = torch.tensor([[3], [4], [5]])
    assert torch.equal(model(next_ids, cache), model(next_ids, other))


@pytest.mark.parametrize("name", ["optimum", "shared"])
def test_keys_put_into_a_layer_are_copied(name: str, lab: Any) -> None:
    model = graphs.shared(name)
    state = lab.state_of(model, PROMPTS)
    cache, twin = model.new_cache(state), model.new_cache(state)
    model(state.token_ids, cache)
    model(state.token_ids, twin)
    for i, (keys, values) in enumerate(cache.layers):
        keys, values = keys.clone(), values.clone()
        cache.replace(i, keys, values)
        keys.fill_(9), values.fill_(9)
    next_ids = torch.tensor([[3], [4], [5]])
    assert torch.equal(model(next_ids, cache), model(next_ids, twin))


# --- failures -----------------------------------------------------------------------------


class _Fails:
    """A session that fails at one of its runs, after it has written."""

    def __init__(self, session: Any, at: int) -> None:
        self._session = session
        self.left = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, *arguments: Any) -> None:
        self._session.run_with_iobinding(*arguments)
        self.left -= 1
        if not self.left:
            raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("name", "at"),
    [(name, at) for name, runs in (("optimum", 2), ("no_past", 2), ("shared", 5))
     for at in range(1, runs + 1)],
)  # fmt: skip
def test_a_forward_that_fails_leaves_nothing_behind(name: str, at: int, lab: Any) -> None:
    """On shared memory a block runs row by row, and may fail when some rows have been written."""
    model = graphs.load(name)
    state = lab.state_of(model, PROMPTS)
    model.session = _Fails(model.session, at)
    cache = model.new_cache(state)
    failures = 0
    for end in (4, 6):
        begin = cache.length
        try:
            given = model(state.token_ids[:, begin:end], cache)
        except ModelOutputError:
            failures += 1
            assert cache.length == begin
            cache.crop(begin)
            given = model(state.token_ids[:, begin:end], cache)
    assert failures == 1
    for ids, logits in zip(PROMPTS, given, strict=True):
        assert (logits - graphs.logits(ids)[-1]).abs().max() < TOLERANCE


# --- pieces and places --------------------------------------------------------------------


class _Counts:
    """A session that notes how many rows and columns of ids each forward gets."""

    def __init__(self, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: list[tuple[int, ...]] = []
        for module in (onnx_shared, onnx_tensors):
            monkeypatch.setattr(module, "bind", self._noting(module.bind))

    def _noting(self, bind: Any) -> Any:
        def noting(binding: Any, port: Any, tensor: torch.Tensor) -> None:
            if port.name == "input_ids":
                self.shapes.append(tuple(tensor.shape))
            bind(binding, port, tensor)

        return noting


@pytest.mark.parametrize("name", ["optimum", "transformers", "kept", "shared"])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_long_prompt_is_fed_in_pieces(
    name: str, rows: int, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of every position take memory: so many places at once, in all rows together."""
    model = graphs.load(name, prefill_chunk=12)
    counts = _Counts(model.session, monkeypatch)
    prompts = [lab.prompt(30, i) for i in range(rows)]
    Pipeline(model).generate(prompts, max_new_tokens=1)
    assert max(n * columns for n, columns in counts.shapes) <= 12
    assert sum(n * columns for n, columns in counts.shapes) == 30 * rows


def test_rows_without_a_token_in_a_piece_are_not_fed(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graphs.load("shared", prefill_chunk=8)
    counts = _Counts(model.session, monkeypatch)
    Pipeline(model).generate([lab.prompt(30), lab.prompt(2)], max_new_tokens=1)
    assert sum(n * columns for n, columns in counts.shapes) == 32


def test_nothing_is_copied_between_the_two_libraries() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    value = onnx_tensors.lend(tensor)
    assert value.data_ptr() == tensor.data_ptr()
    assert onnx_tensors.borrow(value).data_ptr() == tensor.data_ptr()


# --- growth -------------------------------------------------------------------------------


def _resident() -> int:
    """Bytes of memory that this process holds."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["optimum", "transformers", "shared", "shared_kept"])
def test_two_thousand_steps_grow_by_the_cache_alone(name: str, lab: Any) -> None:
    """The second text of this length finds all memory that it needs; the first adds its cache."""
    model = graphs.load(LAYOUTS[name].with_(table_length=2300))
    ids = lab.prompt(2100)
    measured = []
    for _ in range(2):
        state = lab.state_of(model, [ids[:1]], room=2100)
        cache = model.new_cache(state)
        for step, token_id in enumerate(ids):
            model(state.token_ids[:, cache.length :], cache)
            state.append(torch.tensor([token_id]))
            if step in (99, 2099):
                gc.collect()
                measured.append(_resident())
        num_bytes = cache.num_bytes
        del cache
    assert num_bytes >= 2100 * 2 * graphs.NUM_LAYERS * graphs.NUM_KV_HEADS * graphs.HEAD_DIM * 4
    first, last, _, again = measured
    assert last - first < 3 * num_bytes + 16 * 2**20  # the allocator takes memory in large pieces
    assert again - last < num_bytes + 2**20
