"""Each position is rounded once, and nothing but the position itself decides how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from genkit.components.caches import Dynamic, Quantized
from genkit.components.caches.packing import Packing
from genkit.components.stopping import MaxNewTokens
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import ModelOutputError, OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, TinyModel

BITS = [8, 4]
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "alibi": {"positions": "alibi"},
    "mixed windows": {"window": [8, None]},
}


def state_of(prompts: Sequence[Sequence[int]], room: int = 64) -> GenerationState:
    limits = [len(ids) + room for ids in prompts]
    return GenerationState(prompts, limits, RowRandom([0] * len(prompts), [0] * len(prompts)))


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(1000 * seed + num_tokens)
    return torch.randint(0, 256, (num_tokens,), generator=generator).tolist()


def filled(model: Any, manager: Any, ids: Sequence[int], *pieces: int) -> Any:
    """A cache that was fed `ids`, cut at the columns `pieces`."""
    cache = manager.acquire(model, state_of([ids]))
    for begin, end in zip([0, *pieces], [*pieces, len(ids)], strict=True):
        model(torch.tensor([ids[begin:end]]), cache)
    return cache


def equal_layers(left: Any, right: Any) -> bool:
    pairs = zip(left.layers, right.layers, strict=True)
    return all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_computes_on_what_dynamic_holds_rounded(kind: str, bits: Any) -> None:
    """The reference rounds the layers of a plain cache in place, each position once."""
    model = TinyModel(dtype=torch.float64, **KINDS[kind])
    packing = Packing(bits, 4)
    state = state_of([prompt(11), prompt(5)])
    cache = Quantized(bits=bits, group_size=4).acquire(model, state)
    plain = Dynamic().acquire(model, state)
    for _ in range(20):
        rounded_up_to = plain.length
        given, expected = (model(state.since(each.length), each) for each in (cache, plain))
        assert torch.equal(given, expected)
        for i, (keys, values) in enumerate(plain.layers):  # type: ignore[attr-defined]
            new = [
                torch.cat((t[:, :, :rounded_up_to], rounded), 2)
                for t in (keys, values)
                for rounded in [packing.unpack(packing.pack(t[:, :, rounded_up_to:]))]
            ]
            plain.replace(i, *new)  # type: ignore[attr-defined]
        assert equal_layers(cache, plain)
        state.append(expected.argmax(-1))


def test_rounding_matters_to_the_logits_and_8_bits_less_than_4() -> None:
    """The tests here could not fail if it did not."""
    model = TinyModel(dtype=torch.float64)
    ids = prompt(20)
    exact = model(torch.tensor([[7]]), filled(model, Dynamic(), ids))
    errors = []
    for bits in BITS:
        cache = filled(model, Quantized(bits=bits), ids)
        errors.append(float((model(torch.tensor([[7]]), cache) - exact).abs().max()))
    assert 1e-4 < errors[0] < errors[1] / 4


@pytest.mark.parametrize("bits", BITS)
def test_a_row_of_a_batch_is_the_row_alone(bits: Any) -> None:
    """Rows of different lengths, two of which end before the others."""
    model = TinyModel(dtype=torch.float64)
    prompts = [prompt(12), prompt(3), prompt(7), prompt(9)]
    limits = [24, 40, 15, 9 + 31]

    def run(rows: list[int]) -> list[tuple[list[int], list[torch.Tensor]]]:
        pipeline = Pipeline(model, cache=Quantized(bits=bits), stop_criteria=[Ends(limits, rows)])
        found: dict[int, tuple[list[int], list[torch.Tensor]]] = {i: ([], []) for i in rows}
        for step in pipeline.decode([prompts[i] for i in rows], seed=0):
            for j, row in enumerate(step.rows.tolist()):
                found[rows[row]][0].append(int(step.next_ids[j]))
                found[rows[row]][1].append(step.raw_logits[j])
        return [found[i] for i in rows]

    together = run([0, 1, 2, 3])
    for i in range(4):
        [(tokens, logits)] = run([i])
        assert together[i][0] == tokens
        assert len(tokens) == limits[i] - len(prompts[i])
        assert (torch.stack(together[i][1]) - torch.stack(logits)).abs().max() < 1e-9


class Ends:
    """Ends each row at a length of its own."""

    def __init__(self, limits: Sequence[int], rows: Sequence[int]) -> None:
        self.limits = torch.tensor([limits[row] for row in rows])

    def __call__(self, state: GenerationState) -> torch.Tensor:
        return state.num_tokens >= self.limits[state.rows]


@pytest.mark.parametrize("bits", BITS)
def test_rows_are_reordered_for_their_whole_length(bits: Any) -> None:
    """Rows hold their row number (CACHE-11)."""
    model = TinyModel()
    state = state_of([prompt(20), prompt(20, 1)])
    cache: Any = Quantized(bits=bits).acquire(model, state)
    model(state.token_ids, cache)
    for i, (keys, values) in enumerate(cache.layers):
        number = torch.arange(1.0, 3.0)[:, None, None, None]
        cache.replace(i, number.expand_as(keys), number.expand_as(values))
    cache.reorder([1, 0, 1])
    assert len(cache.starts) == 3
    for layer in cache.layers:
        for tensor in layer:
            assert tensor.shape == (3, 2, 20, 6)
            assert [row.round().unique().tolist() for row in tensor] == [[2], [1], [2]]
    model(torch.tensor([[1], [2], [3]]), cache)
    assert cache.layers[0][0].shape == (3, 2, 21, 6)


@pytest.mark.parametrize("bits", BITS)
def test_columns_that_were_cropped_leave_no_trace(bits: Any) -> None:
    model = TinyModel()
    ids, other = prompt(30), prompt(30, 1)
    manager = Quantized(bits=bits)
    for length in range(1, 30):
        cache = filled(model, manager, [*ids[:length], *other[length:]], length)
        cache.crop(length)
        assert cache.length == length
        model(torch.tensor([ids[length:]]), cache)
        straight = filled(model, manager, ids, length)
        assert equal_layers(cache, straight)
        assert cache.num_bytes == straight.num_bytes
        given, expected = (model(torch.tensor([[5]]), each) for each in (cache, straight))
        assert torch.equal(given, expected)


def test_a_cache_that_was_cropped_to_nothing_is_empty() -> None:
    model = TinyModel()
    cache = filled(model, Quantized(), prompt(9))
    cache.crop(0)
    assert (cache.length, cache.num_bytes) == (0, 0)
    model(torch.tensor([prompt(7)]), cache)
    assert equal_layers(cache, filled(model, Quantized(), prompt(7)))


def test_layers_put_back_change_nothing() -> None:
    model = TinyModel()
    cache = filled(model, Quantized(bits=4), prompt(9))
    before = [(keys.clone(), values.clone()) for keys, values in cache.layers]
    for i, layer in enumerate(before):
        cache.replace(i, *layer)
    after = cache.layers
    assert all(torch.equal(a[j], b[j]) for a, b in zip(before, after, strict=True) for j in (0, 1))


def test_layers_can_be_put_into_an_empty_cache() -> None:
    model = TinyModel()
    old = filled(model, Quantized(), prompt(9))
    new: Any = Quantized().acquire(model, state_of([prompt(9)]))
    new.advance(9)
    for i, layer in enumerate(old.layers):
        new.replace(i, *layer)
    given, expected = (model(torch.tensor([[5]]), each) for each in (new, old))
    assert torch.equal(given, expected)


def test_leaving_columns_out_is_refused() -> None:
    model = TinyModel()
    cache = filled(model, Quantized(), prompt(9))
    assert "positions" not in cache.supports
    with pytest.raises(UnsupportedError, match="`quantized`.*`positions`"):
        cache.replace(0, *cache.layers[0], torch.arange(9)[None])


@pytest.mark.parametrize("layer", [0, 1])
def test_a_failed_forward_leaves_nothing_behind(layer: int) -> None:
    model = TinyModel()
    ids = prompt(12)
    for length in (0, 8):
        cache: Any = Quantized().acquire(model, state_of([ids]))
        straight: Any = Quantized().acquire(model, state_of([ids]))
        for each in (cache, straight):
            if length:
                model(torch.tensor([ids[:length]]), each)
        held = model.layers[layer].pop("down")
        with pytest.raises(KeyError):
            model(torch.tensor([ids[length:]]), cache)
        model.layers[layer]["down"] = held
        assert cache.length == length
        cache.crop(length)
        assert cache.num_bytes == straight.num_bytes
        given, expected = (model(torch.tensor([ids[length:]]), e) for e in (cache, straight))
        assert torch.equal(given, expected)
        assert equal_layers(cache, straight)


@pytest.mark.parametrize(("bits", "share"), [(8, 37 / 128), (4, 21 / 128)])
def test_memory_between_steps_is_that_of_the_codes(bits: Any, share: float) -> None:
    """Against float32 and heads of 64: 0.289 for 8 bits and 0.164 for 4."""
    model = TinyModel(head_dim=64)
    ids = prompt(100)
    cache = filled(model, Quantized(bits=bits), ids, 90, 95)
    plain: Any = filled(model, Dynamic(), ids)
    assert cache.num_bytes == plain.num_bytes * share
    assert cache.peak_bytes == cache.num_bytes + plain.num_bytes
    assert share < {8: 0.30, 4: 0.17}[bits]


def test_nothing_is_expanded_between_steps() -> None:
    cache = filled(TinyModel(), Quantized(), prompt(9), 3, 8)
    assert all(keys.shape[2] == 0 == values.shape[2] for keys, values in cache.inner.layers)
    assert cache.inner.num_bytes == 0
    cache.open()
    assert cache.inner.num_bytes > 0


def test_nan_of_the_model_is_still_seen() -> None:
    model = TinyModel(dtype=torch.float64)
    model.layers[0]["k"][:, 3] = float("nan")
    with pytest.raises(ModelOutputError):
        Pipeline(model, cache=Quantized()).generate(prompt(3), max_new_tokens=2)
    cache = filled(TinyModel(), Quantized(), prompt(4))
    keys, values = cache.layers[0]
    values[0, 0, 2, 1] = float("nan")
    cache.replace(0, keys, values)
    assert TinyModel()(torch.tensor([[5]]), cache).isnan().any()


def test_options_and_needs() -> None:
    assert (Quantized().bits, Quantized().group_size, Quantized.grade) == (8, 32, "lossy")
    for options in ({"bits": 5}, {"bits": True}, {"group_size": 0}):
        with pytest.raises(OptionError):
            Quantized(**options)
    assert Quantized().supports(TinyModel()) == {"crop", "reorder", "layers", "block", "ragged"}
    with pytest.raises(UnsupportedError, match="'quantized'.*layers"):
        Pipeline(ScriptedModel([[0.0, 1.0]], supports={"crop"}), cache=Quantized())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_run_gives_tokens_in_every_precision(dtype: torch.dtype) -> None:
    model = TinyModel(dtype=dtype)
    pipeline = Pipeline(model, cache=Quantized(), stop_criteria=[MaxNewTokens(limit=10)])
    results = pipeline.generate([prompt(4), prompt(9)])
    assert [len(result.token_ids) for result in results] == [10, 10]
