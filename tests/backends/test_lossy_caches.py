"""`sink_window` and `quantized` over models of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from genkit.backends import PyTorch
from genkit.backends.transformers_compat import GrowingLayer
from genkit.components.caches import Dynamic, Quantized, SinkWindow
from genkit.components.caches.packing import Packing
from genkit.errors import UnsupportedError
from genkit.pipeline import Pipeline

TOLERANCE = 1e-4  # float32, logits of order 10
STEPS = 10


def logits_along(
    model: Any, manager: Any, state: Any, answers: torch.Tensor, leave_after: int | None = None
) -> torch.Tensor:
    """Logits while `answers` [batch, steps] are appended; the first row may leave after a step."""
    cache = manager.acquire(model, state)
    steps = []
    for step, column in enumerate(answers.T):
        steps.append(model(state.since(cache.length), cache)[-1])
        state.append(column[-len(state) :])
        if step == leave_after:
            rows = list(range(1, len(state)))
            state.reorder(rows)
            cache.reorder(rows)
    return torch.stack(steps)


# --- sink_window: the same logits as one forward with an explicit mask -------------------


def masked_logits(
    model: Any, ids: Sequence[int], prompt_end: int, num_sinks: int, window: int
) -> torch.Tensor:
    """What transformers computes in one forward, `[len(ids), vocab]`.

    A token of the answer sees the sinks, the last `window` tokens before it, and itself.
    """
    query = torch.arange(len(ids))[:, None]
    key = torch.arange(len(ids))
    held = (key < num_sinks) | (key >= query - window) | (query < prompt_end)
    mask = torch.zeros(len(ids), len(ids)).masked_fill(~((key <= query) & held), -1e30)
    with torch.no_grad():
        output = model.module(
            torch.tensor([ids]),
            attention_mask=mask[None, None],
            position_ids=torch.arange(len(ids))[None],
            use_cache=False,
        )
    logits: torch.Tensor = output.logits[0]
    return logits


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def attention_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "qwen3"])
def test_an_answer_sees_sinks_and_window_only(name: str, attention_kind: str, lab: Any) -> None:
    model = PyTorch.wrap(lab.build(name, attn_implementation=attention_kind))
    for num_sinks, window in [(0, 8), (1, 7), (4, 4)]:
        for num_tokens in (1, 3, window - 1, window, window + 1, num_sinks + window + 1, 30):
            prompts = [lab.prompt(num_tokens + pads, pads) for pads in (6, 0, 3)]
            answers = torch.tensor([lab.prompt(STEPS, seed) for seed in (1, 2, 3)])
            for leave_after in (None, 4) if num_tokens in (3, window, 30) else (None,):
                given = logits_along(
                    model,
                    SinkWindow(num_sinks=num_sinks, window=window),
                    lab.state_of(model, prompts),
                    answers,
                    leave_after,
                )
                ids = [*prompts[2], *answers[2].tolist()]
                end = len(prompts[2])
                expected = masked_logits(model, ids, end, num_sinks, window)[end - 1 : -1]
                assert (given - expected).abs().max() < TOLERANCE, (num_sinks, window, num_tokens)


def test_every_row_sees_its_own_sinks(lab: Any) -> None:
    model = lab.shared("gpt2")
    for pads in range(11):
        prompts = [lab.prompt(13), lab.prompt(13 - pads, 1)]
        answers = torch.tensor([lab.prompt(20, seed) for seed in (1, 2)])
        given = logits_along(
            model, SinkWindow(num_sinks=2, window=9), lab.state_of(model, prompts), answers
        )
        end = len(prompts[1])
        expected = masked_logits(model, [*prompts[1], *answers[1].tolist()], end, 2, 9)[
            end - 1 : -1
        ]
        assert (given - expected).abs().max() < TOLERANCE, pads


def test_memory_is_moved_and_not_taken_anew(lab: Any) -> None:
    """A long prompt's room is given back, and then the same memory serves every step."""
    model = lab.shared("llama")
    state = lab.state_of(model, [lab.prompt(150), lab.prompt(90)], room=100)
    cache: Any = SinkWindow(num_sinks=4, window=12).acquire(model, state)
    held = set()
    for _ in range(100):
        model(state.since(cache.length), cache)
        held.add((cache.num_bytes, *(keys.data_ptr() for keys, _ in cache.layers)))
        state.append(torch.tensor([5, 6]))
    assert len(held) == 1
    assert cache.num_bytes == 2 * 2 * 2 * 2 * (16 + 64) * 8 * 4  # 64 slots to grow into


def test_models_with_windows_or_alibi_are_refused(lab: Any) -> None:
    for name in ("mistral", "gemma3", "bloom", "falcon_alibi"):
        with pytest.raises(UnsupportedError, match="'sink_window'.*positions"):
            Pipeline(lab.shared(name), cache=SinkWindow())


@pytest.mark.slow
def test_memory_stays_the_same_over_5000_tokens(lab: Any) -> None:
    options = {"max_position_embeddings": 5_000, "num_hidden_layers": 1}
    model = PyTorch.wrap(lab.build("llama", **options))
    manager = SinkWindow(num_sinks=4, window=60)
    caches = []

    class Shown:
        def acquire(self, model: Any, state: Any) -> Any:
            caches.append(manager.acquire(model, state))
            return caches[0]

        release = staticmethod(manager.release)

    held = {}
    for step in Pipeline(model, cache=Shown()).decode([lab.prompt(100)]):
        held[caches[0].length] = caches[0].num_bytes
        [stop] = step.stops
    assert held[200] == held[4_999]
    assert set(held.values()) == {held[200]}
    assert stop is not None and stop.finish_reason == "length"


# --- quantized ---------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4])
def test_a_step_computes_on_what_dynamic_holds_rounded(attention: Any, bits: Any, lab: Any) -> None:
    """Windows and alibi too. The reference rounds a plain cache, each position once."""
    packing = Packing(bits, 4)
    state = lab.state_of(attention, [lab.prompt(11), lab.prompt(5)])
    cache = Quantized(bits=bits, group_size=4).acquire(attention, state)
    plain: Any = Dynamic().acquire(attention, state)
    for step in range(12):
        before = plain.length
        given, expected = (attention(state.since(each.length), each) for each in (cache, plain))
        assert torch.equal(given, expected), step
        for i, (keys, values) in enumerate(plain.layers):
            new = [
                torch.cat((t[:, :, :before], packing.unpack(packing.pack(t[:, :, before:]))), 2)
                for t in (keys, values)
            ]
            plain.replace(i, *new)
        state.append(expected.argmax(-1))


def test_a_row_of_a_batch_is_the_row_alone(attention: Any, lab: Any) -> None:
    """Up to what the batch itself does to the floats before they are rounded."""
    prompts = [lab.prompt(9, 1), lab.prompt(12), lab.prompt(5, 2)]
    answers = torch.tensor([lab.prompt(STEPS, seed) for seed in (1, 2, 3)])
    manager = Quantized(group_size=4)
    state = lab.state_of(attention, prompts)
    together = logits_along(attention, manager, state, answers, leave_after=4)
    alone = logits_along(attention, manager, lab.state_of(attention, prompts[2:]), answers[2:])
    exact = logits_along(attention, Dynamic(), lab.state_of(attention, prompts[2:]), answers[2:])
    assert (together - alone).abs().mean() < (together - exact).abs().mean()


@pytest.mark.parametrize(("bits", "most"), [(8, 0.30), (4, 0.17)])
def test_memory_against_dynamic_at_heads_of_64(bits: Any, most: float, lab: Any) -> None:
    """0.289 and 0.164 of the columns held; `dynamic` has room for more, which is not counted."""
    model = PyTorch.wrap(lab.build("llama", head_dim=64))
    state = lab.state_of(model, [lab.prompt(60), lab.prompt(50)])
    cache: Any = Quantized(bits=bits).acquire(model, state)
    plain: Any = Dynamic().acquire(model, state)
    for each in (cache, plain):
        model(state.token_ids, each)
    columns = sum(tensor.nbytes for layer in plain.layers for tensor in layer)
    assert cache.num_bytes < most * columns
    assert cache.num_bytes == columns * {8: 37, 4: 21}[bits] / 128
    assert cache.inner.num_bytes == 0
    before = cache.num_bytes
    model(torch.tensor([[5], [6]]), cache)
    assert cache.num_bytes == before / 60 * 61
    assert cache.peak_bytes >= cache.num_bytes + columns / 60 * 61


def test_a_forward_that_fails_leaves_nothing_behind(lab: Any) -> None:
    model = PyTorch.wrap(lab.build("llama"))
    ids = lab.prompt(16)
    state = lab.state_of(model, [ids])
    cache, straight = (Quantized().acquire(model, state) for _ in range(2))
    for each in (cache, straight):
        model(torch.tensor([ids[:10]]), each)

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    hook = model.module.model.layers[1].mlp.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        model(torch.tensor([ids[10:13]]), cache)
    hook.remove()
    cache.crop(10)
    assert cache.num_bytes == straight.num_bytes  # type: ignore[attr-defined]
    given, expected = (model(torch.tensor([ids[10:]]), each) for each in (cache, straight))
    assert torch.equal(given, expected)


def test_cropped_columns_leave_no_trace(attention: Any, lab: Any) -> None:
    ids, other = lab.prompt(20), lab.prompt(20, 1)
    manager = Quantized(group_size=4)
    for length in (1, 7, 8, 9, 19):
        cache, straight = (
            manager.acquire(attention, lab.state_of(attention, [ids])) for _ in range(2)
        )
        for each in (cache, straight):
            attention(torch.tensor([ids[:length]]), each)
        attention(torch.tensor([other[length:]]), cache)
        cache.crop(length)
        cache.reorder([0, 0])
        straight.reorder([0, 0])
        fed = torch.tensor([ids[length:]] * 2)
        assert torch.equal(attention(fed, cache), attention(fed, straight))


# --- the memory of a layer ---------------------------------------------------------------


def states(num_slots: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 1, 3, num_slots, 4, generator=generator).unbind()


def test_a_layer_that_is_emptied_takes_no_room() -> None:
    layer = GrowingLayer(max_length=500)
    keys, values = states(100)
    layer.update(keys, values)
    layer.put(keys[:, :, :0], values[:, :, :0])
    assert sum(room.nbytes for room in layer.rooms) == 0
    assert layer.get_seq_length() == 0
    given = layer.update(*states(3, 1))
    assert all(torch.equal(a, b) for a, b in zip(given, states(3, 1), strict=True))


def test_the_room_of_a_layer_stays_while_it_is_of_use() -> None:
    layer = GrowingLayer(max_length=10_000)
    layer.update(*states(2_000))
    layer.put(*states(30))
    assert layer.rooms[0].shape[-2] == 94
    rooms = [room.data_ptr() for room in layer.rooms]
    for _ in range(100):
        layer.update(*states(1))
        layer.put(*states(30))
    assert [room.data_ptr() for room in layer.rooms] == rooms


def test_a_layer_can_be_given_a_part_of_what_it_holds() -> None:
    """Source and destination overlap, shifted by one slot."""
    layer = GrowingLayer(max_length=5_000)
    keys, values = states(3_000)
    layer.update(keys, values)
    layer.put(*(held[:, :, 1:] for held in layer.held()))
    assert torch.equal(layer.held()[0], keys[:, :, 1:])
    assert torch.equal(layer.held()[1], values[:, :, 1:])
