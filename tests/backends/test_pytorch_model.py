"""A wrapped transformers model gives what the bare model gives, however it is fed."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import torch
import transformers

from genkit.backends import PyTorch
from genkit.backends.transformers_compat import Signature
from genkit.core.contracts import Model
from genkit.errors import ModelLoadError, UnsupportedError

TOLERANCE = 1e-4  # float32, logits of order 10


class NoText:
    """A tokenizer of which only the facts matter."""

    def __init__(self, vocab_size: int, eos_token_id: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.eos_token_id = eos_token_id
        self.bos_token_id = None
        self.special_token_ids = frozenset[int]()

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    decode = token_text = encode_chat = encode


def bare_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """What transformers computes in one plain forward, `[len(ids), vocab]`."""
    with torch.no_grad():
        return (
            model.module(torch.tensor([ids], device=model.device), use_cache=False).logits[0].cpu()
        )


def generated_by_transformers(model: Any, ids: list[int], steps: int) -> list[int]:
    prompt = torch.tensor([ids])
    out = model.module.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=steps,
        do_sample=False,
        pad_token_id=0,
    )
    return out[0, len(ids) :].tolist()


# --- the same tokens and logits as transformers ------------------------------------------


def test_the_model_keeps_the_contract(attention: Any) -> None:
    assert isinstance(attention, Model)
    assert attention.vocab_size == 97
    assert attention.supports - {"positions"} == {
        "crop", "reorder", "block", "ragged", "layers", "static"
    }  # fmt: skip


def test_only_models_without_windows_and_alibi_do_without_some_keys(lab: Any) -> None:
    without = {n for n in lab.ATTENTION if "positions" not in lab.shared(n).supports}
    assert without == {"mistral", "gemma2", "gemma3", "bloom", "falcon_alibi"}


def test_greedy_tokens_are_those_of_transformers(attention: Any, lab: Any) -> None:
    ids = lab.prompt(7)
    assert lab.greedy(attention, [ids], 64)[0] == generated_by_transformers(attention, ids, 64)


def test_without_a_cache_the_tokens_are_the_same(attention: Any, lab: Any) -> None:
    ids = lab.prompt(7)
    cached = lab.greedy(attention, [ids], 24)
    assert lab.greedy(attention, [ids], 24, lab.Forgetful()) == cached


def test_logits_are_those_of_one_plain_forward(attention: Any, lab: Any) -> None:
    ids = lab.prompt(30)
    given = lab.logits_along(attention, [ids[:10]], torch.tensor([ids[10:]]))
    expected = bare_logits(attention, ids)[9:-1]
    assert (given[0] - expected).abs().max() < TOLERANCE


def test_eager_attention_gives_the_same_logits(lab: Any) -> None:
    module = lab.build("mistral", attn_implementation="eager")
    ids = lab.prompt(30)
    eager = PyTorch.wrap(module)
    follow = torch.tensor([ids[10:], ids[10:]])
    given = lab.logits_along(eager, [ids[:10], ids[3:10]], follow)
    expected = lab.logits_along(lab.shared("mistral"), [ids[:10], ids[3:10]], follow)
    assert (given - expected).abs().max() < TOLERANCE


def test_every_device_gives_the_same_logits(lab: Any, device: str) -> None:
    module = lab.build("llama")
    ids = lab.prompt(20)
    prompts, follow = [ids[:9], ids[:4]], torch.tensor([ids[9:], ids[9:]])
    expected = lab.logits_along(lab.shared("llama"), prompts, follow)
    given = lab.logits_along(PyTorch.wrap(module.to(device)), prompts, follow)
    assert (given - expected).abs().max() < 1e-3


# --- rows of different lengths -----------------------------------------------------------


def test_a_padded_row_is_the_row_alone(attention: Any, lab: Any) -> None:
    prompts = [lab.prompt(12), lab.prompt(5), lab.prompt(9)]
    follow = torch.tensor([lab.prompt(12, seed) for seed in (1, 2, 3)])
    together = lab.logits_along(attention, prompts, follow)
    for i, ids in enumerate(prompts):
        alone = lab.logits_along(attention, [ids], follow[i : i + 1])
        assert (together[i] - alone[0]).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "gemma3", "bloom"])
def test_every_number_of_pads_gives_the_same_logits(name: str, lab: Any) -> None:
    model = lab.shared(name)
    ids, follow = lab.prompt(5), lab.prompt(4, 1)
    alone = lab.logits_along(model, [ids], torch.tensor([follow]))
    for num_pads in range(1, 17):
        longer = lab.prompt(5 + num_pads)
        together = lab.logits_along(model, [ids, longer], torch.tensor([follow, follow]))
        assert (together[0] - alone[0]).abs().max() < TOLERANCE


def test_learned_positions_would_notice_a_shift(lab: Any) -> None:
    """The tests above could not fail if moving a prompt changed nothing."""
    model = lab.shared("gpt2")
    ids = torch.tensor([lab.prompt(6)])
    with torch.no_grad():
        shifted = model.module(ids, position_ids=torch.arange(3, 9)[None]).logits
    assert (shifted - model.module(ids).logits).abs().max() > 0.5


# --- windows -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3"])
def test_a_window_is_crossed_at_every_prompt_length(name: str, lab: Any) -> None:
    """Window 8; the reference is one forward of everything, whose mask is a plain band."""
    model = lab.shared(name)
    for num_tokens in range(1, 21):
        ids = lab.prompt(num_tokens + 12)
        given = lab.logits_along(model, [ids[:num_tokens]], torch.tensor([ids[num_tokens:]]))
        expected = bare_logits(model, ids)[num_tokens - 1 : -1]
        assert (given[0] - expected).abs().max() < TOLERANCE, num_tokens


def test_a_window_counts_the_token_itself(lab: Any) -> None:
    """One windowed layer, window 8: the token 8 places back is not seen, the one 7 back is."""
    model = PyTorch.wrap(lab.build("mistral", num_hidden_layers=1))
    ids = lab.prompt(20)
    last = bare_logits(model, ids)[-1]
    for back, seen in ((8, False), (7, True)):
        other = ids.copy()
        other[-1 - back] = (other[-1 - back] + 1) % 97
        given = lab.logits_along(model, [other[:5]], torch.tensor([[*other[5:], 0]]))[0, -1]
        assert bool((given - last).abs().max() > 1e-3) is seen


# --- crop, reorder, blocks ---------------------------------------------------------------


def test_crop_leaves_no_trace(attention: Any, lab: Any) -> None:
    ids = lab.prompt(30)
    state = lab.state_of(attention, [ids])
    cache = attention.new_cache(state)
    attention(torch.tensor([ids]), cache)
    for length in (21, 8, 3, 0):
        cache.crop(length)
        assert cache.length == length
        given = attention(torch.tensor([ids[length:25]]), cache)
        assert (given[0] - bare_logits(attention, ids[:25])[-1]).abs().max() < TOLERANCE


def test_reorder_moves_rows_with_their_past(attention: Any, lab: Any) -> None:
    prompts = [lab.prompt(12), lab.prompt(5), lab.prompt(9)]
    state = lab.state_of(attention, prompts)
    cache = attention.new_cache(state)
    attention(state.token_ids, cache)
    order = [2, 0, 2]
    cache.reorder(order)
    assert cache.starts.tolist() == [3, 0, 3]
    next_ids = torch.tensor([5, 6, 7])
    given = attention(next_ids[:, None], cache)
    for i, row in enumerate(order):
        expected = bare_logits(attention, [*prompts[row], int(next_ids[i])])[-1]
        assert (given[i] - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("explicit", [False, True])
def test_layers_read_and_put_back_change_nothing(attention: Any, explicit: bool, lab: Any) -> None:
    state = lab.state_of(attention, [lab.prompt(9), lab.prompt(4)])
    old = attention.new_cache(state)
    attention(state.token_ids, old)
    new = attention.new_cache(state)
    new.advance(old.length)
    columns = torch.arange(old.length).expand(2, -1)
    columns = torch.where(columns < state.starts[:, None], -1, columns) if explicit else None
    if explicit and "positions" not in attention.supports:
        with pytest.raises(UnsupportedError, match="positions"):
            new.replace(0, *old.layers[0], columns)
        return
    for i, (keys, values) in enumerate(old.layers):
        new.replace(i, keys, values, columns)
    new.crop(7)
    old.crop(7)
    for _ in range(3):
        given, wanted = (attention(state.since(c.length), c) for c in (new, old))
        assert (given - wanted).abs().max() < TOLERANCE
        state.append(wanted.argmax(-1))
        for cache in (new, old):
            cache.reorder([1, 0])
        state.reorder([1, 0])


def test_layers_with_different_columns_are_refused(lab: Any) -> None:
    model = lab.shared("llama")
    state = lab.state_of(model, [lab.prompt(5)])
    cache = model.new_cache(state)
    model(state.token_ids[:, :4], cache)
    keys, values = cache.layers[0]
    cache.replace(0, keys[:, :, 1:], values[:, :, 1:], torch.tensor([[1, 2, 3]]))
    with pytest.raises(UnsupportedError, match="different columns"):
        model(state.since(4), cache)


def test_a_left_out_column_is_as_if_it_were_masked(lab: Any) -> None:
    model = lab.shared("llama")
    state = lab.state_of(model, [lab.prompt(6)])
    cache = model.new_cache(state)
    model(state.token_ids[:, :5], cache)
    for i, (keys, values) in enumerate(cache.layers):
        kept = torch.tensor([0, 3, 4])
        cache.replace(i, keys[:, :, kept], values[:, :, kept], kept[None])
    given = model(state.since(5), cache)
    mask = torch.ones(6, 6).tril().bool()
    mask[5, 1:3] = False
    with torch.no_grad():
        wanted = model.module(
            state.token_ids,
            attention_mask=torch.zeros(1, 1, 6, 6).masked_fill(~mask, -1e9),
        ).logits[:, -1]
    assert (given - wanted).abs().max() < TOLERANCE


def test_static_memory_is_taken_once(attention: Any, lab: Any) -> None:
    state = lab.state_of(attention, [lab.prompt(6), lab.prompt(3)], room=90)
    cache = attention.new_static_cache(state)
    plain = attention.new_cache(state)
    held = set()
    for _ in range(80):
        given, wanted = (attention(state.since(c.length), c) for c in (cache, plain))
        assert torch.equal(given.argmax(-1), wanted.argmax(-1))
        held.add((cache.num_bytes, *(keys.data_ptr() for keys, _ in cache.layers)))
        state.append(wanted.argmax(-1))
    assert len(held) == 1


def test_a_batch_without_padding_left_is_fed_without_a_mask(lab: Any) -> None:
    model = lab.shared("llama")
    state = lab.state_of(model, [lab.prompt(9), lab.prompt(4)])
    cache = model.new_cache(state)
    assert cache.mask(9).tolist() == [[1] * 9, [0] * 5 + [1] * 4]
    assert cache.positions(9)[1].tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 3]
    cache.reorder([0, 0])
    assert cache.mask(9) is None


def test_the_last_n_positions_are_those_of_a_plain_forward(attention: Any, lab: Any) -> None:
    ids = lab.prompt(24)
    state = lab.state_of(attention, [ids])
    cache = attention.new_cache(state)
    attention(torch.tensor([ids[:10]]), cache)
    given = attention.last(torch.tensor([ids[10:]]), cache, 6)
    assert given.shape == (1, 6, 97)
    assert (given[0] - bare_logits(attention, ids)[-6:]).abs().max() < TOLERANCE


# --- what lies beyond the length is garbage ----------------------------------------------


@pytest.mark.parametrize("layer", [0, 1])
def test_a_failed_forward_leaves_nothing_behind(layer: int, lab: Any) -> None:
    """Layers before the failing one have the tokens already, those behind it have not."""
    module = lab.build("llama")
    model = PyTorch.wrap(module)
    ids = lab.prompt(16)
    state = lab.state_of(model, [ids])
    cache = model.new_cache(state)
    model(torch.tensor([ids[:10]]), cache)

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    hook = module.model.layers[layer].mlp.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        model(torch.tensor([ids[10:13]]), cache)
    hook.remove()
    assert cache.length == 10
    given = model(torch.tensor([ids[10:]]), cache)
    assert (given[0] - bare_logits(model, ids)[-1]).abs().max() < TOLERANCE


def test_a_failed_prefill_of_a_recurrent_model_can_be_repeated(recurrent: Any, lab: Any) -> None:
    ids = lab.prompt(12)
    cache = recurrent.new_cache(lab.state_of(recurrent, [ids]))
    with pytest.raises(IndexError):
        recurrent(torch.tensor([[5, 97]]), cache)
    given = recurrent(torch.tensor([ids]), cache)
    assert (given[0] - bare_logits(recurrent, ids)[-1]).abs().max() < TOLERANCE


# --- models that cannot pad --------------------------------------------------------------


@pytest.mark.parametrize(("name", "context"), [("roberta", 38), ("gpt_neo", 40), ("mpt", 40)])
def test_models_that_cannot_pad_run_alone_up_to_the_end_of_their_context(
    name: str, context: int, lab: Any
) -> None:
    model = lab.shared(name)
    assert model.supports == {"crop", "reorder", "block", "layers", "static"}
    assert model.context_length == context
    ids = lab.prompt(context)
    given = lab.logits_along(model, [ids[:10]], torch.tensor([ids[10:]]))
    assert (given[0] - bare_logits(model, ids)[9:-1]).abs().max() < TOLERANCE
    padded = lab.state_of(model, [lab.prompt(5), lab.prompt(3)])
    with pytest.raises(UnsupportedError, match="different lengths"):
        model(padded.token_ids, model.new_cache(padded))


# --- recurrent models --------------------------------------------------------------------


def test_recurrent_tokens_are_those_of_transformers(recurrent: Any, lab: Any) -> None:
    ids = lab.prompt(9)
    expected = generated_by_transformers(recurrent, ids, 32)
    assert lab.greedy(recurrent, [ids], 32)[0] == expected
    assert lab.greedy(recurrent, [ids], 32, lab.Forgetful())[0] == expected


def test_a_state_that_is_not_what_the_forward_computes_is_refused(lab: Any) -> None:
    import transformers

    config = transformers.Zamba2Config(
        vocab_size=97, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, num_key_value_heads=4, mamba_d_state=8, mamba_headdim=8,
        n_mamba_heads=8, mamba_ngroups=1, layers_block_type=["mamba", "hybrid", "mamba"],
        num_mem_blocks=1, hybrid_layer_ids=[1], chunk_size=8, bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    module = transformers.Zamba2ForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.normal_(0.0, 0.35, generator=generator)
    with pytest.raises(ModelLoadError, match="other logits token by token than at once"):
        PyTorch.wrap(module)


def test_recurrent_models_refuse_what_would_be_silently_wrong(recurrent: Any, lab: Any) -> None:
    assert recurrent.supports == frozenset()
    padded = lab.state_of(recurrent, [lab.prompt(5), lab.prompt(3)])
    with pytest.raises(UnsupportedError, match="different lengths"):
        recurrent(padded.token_ids, recurrent.new_cache(padded))
    cache = recurrent.new_cache(lab.state_of(recurrent, [lab.prompt(5)]))
    recurrent(torch.tensor([lab.prompt(5)]), cache)
    with pytest.raises(UnsupportedError, match="one token at a time"):
        recurrent(torch.tensor([[1, 2]]), cache)
    with pytest.raises(UnsupportedError, match="cannot be cut back"):
        cache.crop(3)
    with pytest.raises(UnsupportedError, match="row after row"):
        cache.reorder([0, 0])


# --- rope that changes with the length ---------------------------------------------------

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5],
    "long_factor": [4.0, 9.0],
    "original_max_position_embeddings": 16,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 16}),
        (
            "phi3",
            {
                "rope_parameters": LONGROPE,
                "max_position_embeddings": 64,
                "original_max_position_embeddings": 16,
            },
        ),
    ],
)
def test_a_changing_rope_ends_the_context(
    name: str, changes: dict[str, Any], lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CACHE-03."""
    model = PyTorch.wrap(lab.build(name, **changes))
    assert model.context_length == 16
    assert "context ends there" in caplog.text
    ids = lab.prompt(16)
    within = lab.logits_along(model, [ids[:10]], torch.tensor([ids[10:]]))
    assert (within[0] - bare_logits(model, ids)[9:-1]).abs().max() < TOLERANCE
    for num_tokens in (10, 20):
        state = lab.state_of(model, [lab.prompt(num_tokens)])
        cache = model.new_cache(state)
        while cache.length + len(state.token_ids[0, cache.length :]) <= 16:
            state.append(model(state.token_ids[:, cache.length :], cache).argmax(-1))
        with pytest.raises(UnsupportedError, match="beyond 16 tokens"):
            model(state.token_ids[:, cache.length :], cache)


def test_a_rope_that_is_scaled_once_works_beyond_its_original_length(lab: Any) -> None:
    """llama3 scaling, original length 16: cached and plain logits agree at 16 and far beyond."""
    model = lab.shared("llama3")
    ids = lab.prompt(60)
    given = lab.logits_along(model, [ids[:10]], torch.tensor([ids[10:]]))
    assert (given[0] - bare_logits(model, ids)[9:-1]).abs().max() < TOLERANCE


# --- memory, dtype, gradients, threads ---------------------------------------------------


def test_the_head_sees_one_position_a_row(lab: Any) -> None:
    """MEM-01; `tests/test_memory.py` has the figures."""
    module = lab.build("llama", vocab_size=5000)
    model = PyTorch.wrap(module)
    seen = []
    module.lm_head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    prompts = [lab.prompt(200), lab.prompt(150)]
    state = lab.state_of(model, prompts)
    given = model(state.token_ids, model.new_cache(state))
    assert seen == [1]
    assert given.shape == (2, 5000)
    assert (given[0] - bare_logits(model, prompts[0])[-1]).abs().max() < TOLERANCE


def test_a_head_that_cannot_leave_positions_out_is_sliced(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PyTorch.wrap(lab.build("llama"))
    monkeypatch.setattr(model._signature, "logits_to_keep", False)
    ids = lab.prompt(9)
    given = model(torch.tensor([ids]), model.new_cache(lab.state_of(model, [ids])))
    assert (given[0] - bare_logits(model, ids)[-1]).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_logits_are_float32_at_least_and_only_those_used_are_raised(
    dtype: torch.dtype, expected: torch.dtype, lab: Any
) -> None:
    """MEM-02."""
    module = lab.build("llama").to(dtype)
    model = PyTorch.wrap(module)
    from_head = []
    module.lm_head.register_forward_hook(lambda _, __, output: from_head.append(output))
    ids = lab.prompt(9)
    given = model(torch.tensor([ids]), model.new_cache(lab.state_of(model, [ids])))
    assert given.dtype == expected
    assert from_head[0].dtype == dtype
    assert from_head[0].shape[1] == 1


def test_logits_carry_no_gradient_and_may_be_written_to(lab: Any) -> None:
    model = lab.shared("llama")
    ids = lab.prompt(5)
    given = model(torch.tensor([ids]), model.new_cache(lab.state_of(model, [ids])))
    assert not given.requires_grad
    assert not given.is_inference()
    assert given._version == given.add_(0)._version - 1


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2", "mamba"])
def test_threads_get_what_they_would_get_alone(name: str, lab: Any) -> None:
    """THR-01; `tests/test_threads.py` has all cache managers."""
    model = PyTorch.wrap(lab.build(name))
    prompts = [lab.prompt(4 + 3 * i) for i in range(8)]
    alone = [lab.greedy(model, [ids], 8)[0] for ids in prompts]
    attributes = {key: id(value) for key, value in vars(model.module).items()}
    barrier = threading.Barrier(len(prompts))
    answers: dict[int, list[list[int]]] = {}

    def work(i: int) -> None:
        barrier.wait()
        answers[i] = [lab.greedy(model, [prompts[i]], 8)[0] for _ in range(2)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i] for i in range(len(prompts))] == [[ids, ids] for ids in alone]
    assert {key: id(value) for key, value in vars(model.module).items()} == attributes


# --- facts -------------------------------------------------------------------------------


def test_eos_is_the_union_of_all_sources(lab: Any) -> None:
    module = lab.build("llama", eos_token_id=2)
    module.generation_config.eos_token_id = [2, 9, -1, 97, 5000]

    assert PyTorch.wrap(module, NoText(vocab_size=50, eos_token_id=11)).eos_token_ids == {2, 9, 11}


def test_the_width_of_the_logits_is_the_models(lab: Any) -> None:
    assert PyTorch.wrap(lab.build("llama", vocab_size=113)).vocab_size == 113
    tied = PyTorch.wrap(lab.build("llama", tie_word_embeddings=True))
    assert tied.vocab_size == 97


def test_a_tokenizer_wider_than_the_model_is_refused(lab: Any) -> None:
    with pytest.raises(ModelLoadError, match=r"98 ids .* 97 only"):
        PyTorch.wrap(lab.build("llama"), NoText(vocab_size=98))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("llama", 256), ("gpt2", 256), ("opt", 256), ("bloom", None), ("mamba", None)],
)
def test_context_length(name: str, expected: int | None, lab: Any) -> None:
    assert lab.shared(name).context_length == expected


def test_a_scaled_rope_lengthens_the_context(lab: Any) -> None:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    module = lab.build("llama", rope_parameters=yarn, max_position_embeddings=32)
    assert PyTorch.wrap(module).context_length == 128


def test_models_that_continue_no_text_are_refused() -> None:
    tiny = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 50}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ffn = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    bart = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**tiny, **heads, **ffn)
    )
    with pytest.raises(ModelLoadError, match="encoder-decoder"):
        PyTorch.wrap(bart)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=50, intermediate_size=16, **size)
    with pytest.raises(ModelLoadError, match="sees both sides"):
        PyTorch.wrap(transformers.BertLMHeadModel(config))
    with pytest.raises(ModelLoadError, match="no logits"):
        PyTorch.wrap(transformers.LlamaModel(transformers.LlamaConfig(vocab_size=50, **size)))


def test_a_model_that_keeps_its_state_inside_is_refused() -> None:
    config = transformers.RecurrentGemmaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        lru_width=32,
    )
    with pytest.raises(ModelLoadError, match="returns no state"):
        PyTorch.wrap(transformers.RecurrentGemmaForCausalLM(config))


def test_describe_is_plain_data(attention: Any) -> None:
    described = attention.describe()
    assert described["vocab_size"] == 97
    assert described["dtype"] == "float32"
    plain = (str, int, float, bool, list, type(None))
    assert all(isinstance(value, plain) for value in described.values())


def test_every_architecture_of_the_zoo_can_leave_positions_out(attention: Any) -> None:
    assert Signature(attention.module).logits_to_keep


def test_the_cache_grows_by_doubling(lab: Any) -> None:
    """Room is taken ahead of need, and never beyond what the run can reach."""
    model = lab.shared("llama")
    state = lab.state_of(model, [lab.prompt(5)], room=200)
    cache = model.new_cache(state)
    rooms = []
    while cache.length < 205:
        state.append(model(state.token_ids[:, cache.length :], cache).argmax(-1))
        rooms.append(cache.open().layers[0].rooms[0].shape[2])
        cache.close(0, None)
    assert [room for room, _ in itertools.groupby(rooms)] == [64, 130, 205]
