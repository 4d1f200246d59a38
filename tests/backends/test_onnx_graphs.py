"""What is read from a graph and the files beside it, and what is said when it cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import graphs
from genkit import Pipeline, processors, stopping
from genkit.backends.onnx_facts import Settings
from genkit.backends.onnx_file import look_into
from genkit.backends.onnxruntime_ import OnnxRuntime
from genkit.components.caches import Prefix
from genkit.errors import ContextLengthError, ModelLoadError, UnknownNameError, UnsupportedError
from genkit.kit import Kit
from graphs import LAYOUTS, Form


def load(folder: Path, **options: Any) -> Any:
    return OnnxRuntime(model=str(folder), **{"provider": "cpu", "threads": 1, **options}).load()


def says(folder: Path, words: str, **options: Any) -> None:
    """Loading fails with these words; the message is one line and names the folder."""
    with pytest.raises(ModelLoadError, match=words) as caught:
        load(folder, **options)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def greedy(model: Any, ids: list[int], steps: int = 6) -> list[int]:
    pipeline = Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=steps)])
    return list(pipeline.generate(ids).token_ids)


IDS = [5, 3, 9, 22, 1, 8]


# --- which graph -------------------------------------------------------------------------


def test_a_folder_without_a_graph(tmp_path: Path) -> None:
    says(tmp_path, r"has no ONNX graph \(a file \*\.onnx, here or in its subfolder onnx\)")


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    says(tmp_path / "nowhere", "there is no file or folder")
    with pytest.raises(UnknownNameError, match="nowhere"):
        load(Path("nowhere"))


def test_a_file_may_be_named_itself(tmp_path: Path) -> None:
    graphs.write(tmp_path, file="other.onnx")
    assert greedy(load(tmp_path / "other.onnx"), IDS) == graphs.greedy(IDS, 6)


def test_a_graph_in_the_subfolder_onnx_has_its_files_one_folder_up(tmp_path: Path) -> None:
    graphs.write(tmp_path, Form(open_sizes=True), file="onnx/model.onnx")
    model = load(tmp_path)
    assert model.context_length == graphs.CONTEXT_LENGTH
    assert greedy(model, IDS) == graphs.greedy(IDS, 6)


def test_of_several_graphs_the_usual_one_is_taken(tmp_path: Path) -> None:
    graphs.write(tmp_path, file="model_quantized.onnx")
    graphs.write(tmp_path)
    assert load(tmp_path).graph.path.name == "model.onnx"
    assert load(tmp_path, file="model_quantized.onnx").graph.path.name == "model_quantized.onnx"


def test_of_several_graphs_genai_names_one(tmp_path: Path) -> None:
    graphs.write(tmp_path, file="a.onnx")
    graphs.write(tmp_path, file="b.onnx")
    config = {"model": {"decoder": {"filename": "b.onnx"}, "context_length": 100}}
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    model = load(tmp_path)
    assert model.graph.path.name == "b.onnx"
    assert model.context_length == 100


def test_several_graphs_and_no_telling_which(tmp_path: Path) -> None:
    for name in ("a", "b"):
        graphs.write(tmp_path, file=f"{name}.onnx")
    says(tmp_path, "several graphs \\('a.onnx', 'b.onnx'\\); say which one with `file: NAME`")
    assert greedy(load(tmp_path, file="b.onnx"), IDS) == graphs.greedy(IDS, 6)


def test_a_file_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    graphs.write(tmp_path)
    says(tmp_path, "has no file 'nope.onnx'; graphs there: 'model.onnx'", file="nope.onnx")


# --- files that cannot be read -----------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"no protobuf at all", b"\x08\x09"])
def test_a_file_that_is_no_graph(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    says(tmp_path, "cannot be read as an ONNX graph|is no ONNX graph, or an empty one")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_graph_that_is_cut_short(tmp_path: Path, share: float) -> None:
    path = graphs.write(tmp_path) / "model.onnx"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    says(tmp_path, "cannot be read as an ONNX graph")


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    graphs.write(tmp_path, external=True)
    assert (tmp_path / "model.onnx.data").is_file()
    assert greedy(load(tmp_path), IDS) == graphs.greedy(IDS, 6)


def test_weights_that_are_missing(tmp_path: Path) -> None:
    (graphs.write(tmp_path, external=True) / "model.onnx.data").unlink()
    says(tmp_path, "keeps its weights in 'model.onnx.data', and .* is missing")


@pytest.mark.parametrize("left", [0, 100, -1])
def test_weights_that_are_cut_short(tmp_path: Path, left: int) -> None:
    path = graphs.write(tmp_path, external=True) / "model.onnx.data"
    path.write_bytes(path.read_bytes()[:left])
    says(tmp_path, r"model\.onnx\.data is cut short: it has [\d,]+ bytes, and '.+' ends at [\d,]+")


def test_an_opset_that_the_runtime_does_not_know(tmp_path: Path) -> None:
    says(graphs.write(tmp_path, Form(opset=999)), "opset|Opset")


def test_a_file_format_that_the_runtime_does_not_know(tmp_path: Path) -> None:
    path = graphs.write(tmp_path) / "model.onnx"
    model = onnx.load(str(path))
    model.ir_version = 999
    onnx.save(model, str(path))
    says(tmp_path, "IR version")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "genai_config.json"])
@pytest.mark.parametrize("content", ["{", "[1, 2]", "\udcff", "[" * 100_000])
def test_a_file_beside_the_graph_that_cannot_be_read(
    tmp_path: Path, name: str, content: str
) -> None:
    graphs.write(tmp_path)
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    says(tmp_path, rf"{name} (cannot be read|is no JSON object)")


@pytest.mark.parametrize("model", [None, [], "x", {"decoder": 3}, {"decoder": {"filename": 4}}])
def test_a_genai_config_of_another_form_is_passed_over(tmp_path: Path, model: Any) -> None:
    graphs.write(tmp_path)
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": model}))
    assert load(tmp_path).context_length == graphs.CONTEXT_LENGTH


def branching(folder: Path, *inside: Any, weight: Any = None) -> Path:
    """A graph all of which is in the branches of one node, as merged exports are."""
    output = port("logits", shape=None)
    weights = [] if weight is None else [weight]
    branch = helper.make_graph(list(inside), "branch", [], [output], weights)
    node = helper.make_node(
        "If", ["use_cache_branch"], ["logits"], then_branch=branch, else_branch=branch
    )
    return bare(folder, [port("use_cache_branch", TensorProto.BOOL, [1])], [output], [node])


def test_what_is_in_branches_is_looked_into(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["numbers"], value_floats=[1.0, 2.0])
    names = ["codes", "scale", "zero"]
    rounds = helper.make_node("DynamicQuantizeLinear", ["numbers"], names)
    back = helper.make_node("DequantizeLinear", names, ["logits"])
    plain = helper.make_node("Identity", ["numbers"], ["logits"])
    branching(tmp_path, constant, rounds, back)
    assert look_into(tmp_path / "model.onnx").rounds_activations
    branching(tmp_path, constant, plain)
    assert not look_into(tmp_path / "model.onnx").rounds_activations

    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "numbers")
    onnx.external_data_helper.set_external_data(weight, "lost.bin", offset=0, length=16)
    weight.ClearField("raw_data")
    branching(tmp_path, plain, weight=weight)
    says(tmp_path, "keeps its weights in 'lost.bin', and .* is missing")


# --- graphs of another task --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("encoder_hidden_states", "it is one half of an encoder-decoder model"),
        ("encoder_attention_mask", "it is one half of an encoder-decoder model"),
        ("decoder_input_ids", "it is an encoder-decoder model"),
        ("token_type_ids", "it is an encoder, such as BERT"),
        ("pixel_values", "it reads images"),
    ],
)
def test_an_input_that_tells_another_task(tmp_path: Path, name: str, reason: str) -> None:
    graphs.write(tmp_path, Form(extra=(name,)))
    says(tmp_path, f"takes '{name}', which genkit does not know: {reason}")


def test_an_input_that_genkit_does_not_know(tmp_path: Path) -> None:
    graphs.write(tmp_path, Form(extra=("task_id", "adapter")))
    says(tmp_path, "takes 'adapter', 'task_id', which genkit does not know. It knows input_ids, ")


def test_an_encoder_with_the_inputs_of_a_language_model(tmp_path: Path) -> None:
    """A masked language model: every token sees every other one."""
    graphs.write(tmp_path, Form(past="none", causal=False))
    says(tmp_path, "sees the token after a position, as an encoder does; it continues no text")


def test_an_encoder_without_a_head(tmp_path: Path) -> None:
    graphs.write(tmp_path, Form(past="none", output="last_hidden_state"))
    says(tmp_path, "gives no `logits` but 'last_hidden_state'; export the model for text gener")


def bare(folder: Path, inputs: list[Any], outputs: list[Any], nodes: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=9), str(folder / "model.onnx")
    )
    return folder


def port(name: str, kind: int = TensorProto.FLOAT, shape: Any = ("b", "n", 8)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def test_a_graph_of_no_language_at_all(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["image"], ["logits"])
    says(bare(tmp_path, [port("image")], [port("logits")], [node]), "takes 'image', which genkit")
    node = helper.make_node("RandomNormal", [], ["logits"], shape=[1, 2, 8])
    says(bare(tmp_path, [], [port("logits")], [node]), "takes no `input_ids` but nothing")


def test_an_input_of_text(tmp_path: Path) -> None:
    node = helper.make_node("StringNormalizer", ["input_ids"], ["logits"])
    text = (
        [port("input_ids", TensorProto.STRING, ["n"])],
        [port("logits", TensorProto.STRING, None)],
    )
    says(bare(tmp_path, *text, [node]), r"'input_ids' is a tensor\(string\), which genkit cannot")


def test_a_past_that_comes_out_nowhere(tmp_path: Path) -> None:
    graphs.write(tmp_path, Form(drop_present=True))
    says(tmp_path, "takes 'past_key_values.1.value' and gives no 'present.1.value'")


def test_a_past_of_layers_without_keys(tmp_path: Path) -> None:
    graphs.write(tmp_path)
    path = tmp_path / "model.onnx"
    model = onnx.load(str(path))
    for name in ("past_key_values.1.key", "present.1.key"):
        other = name.replace("1", "2")
        for node in model.graph.node:
            for names in (node.input, node.output):
                for i, each in enumerate(names):
                    if each == name:
                        names[i] = other
        for each in (*model.graph.input, *model.graph.output):
            if each.name == name:
                each.name = other
    onnx.save(model, str(path))
    says(tmp_path, "does not take a key and a value of every layer")


# --- exports that are broken -------------------------------------------------------------


def test_a_graph_that_gives_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overflowing = {**graphs.weights(), "head": graphs.weights()["head"] * np.nan}
    monkeypatch.setattr(graphs, "weights", lambda *sizes: overflowing)
    graphs.write(tmp_path)
    says(tmp_path, "gives NaN where logits are due; .* export it in float32")


@pytest.mark.parametrize("count", [1, 5, 7])
def test_a_number_of_tokens_that_is_baked_in(tmp_path: Path, count: int) -> None:
    """ONNX-16: such a graph runs at the length it was traced with only."""
    graphs.write(tmp_path, Form(baked={"n": count}))
    says(tmp_path, "does not run: |gives other logits with its past than at once")


def test_a_number_of_rows_that_is_baked_in(tmp_path: Path) -> None:
    """ONNX-16: rows then run one after the other; each gives what it should."""
    model = load(graphs.write(tmp_path, Form(baked={"batch": 1})))
    assert model.supports & {"reorder", "ragged"} == set()
    pipeline = Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=6)])
    found = pipeline.generate([IDS, IDS[:3], IDS[1:]])
    assert [list(each.token_ids) for each in found] == [
        graphs.greedy(ids, 6) for ids in (IDS, IDS[:3], IDS[1:])
    ]


def test_a_graph_that_wants_more_rows_than_one(tmp_path: Path) -> None:
    graphs.write(tmp_path, Form(batch=2))
    says(tmp_path, "does not run: .*input_ids")


def test_a_context_that_is_longer_than_the_table_of_rotations(tmp_path: Path) -> None:
    """What lies beyond the table is memory that is not the graph's."""
    form = Form(past="shared", positions="columns", table_length=64)
    model = load(graphs.write(tmp_path, form, max_position_embeddings=8192))
    assert model.context_length == 64
    ids = [1 + i % 90 for i in range(60)]
    result = Pipeline(model).generate(ids)
    assert result.finish_reason == "length"
    assert list(result.token_ids) == graphs.greedy(ids, 4)
    with pytest.raises(ContextLengthError, match="64"):
        Pipeline(model).generate(ids + ids)


@pytest.mark.parametrize("form", ["optimum", "shared", "last_only"])
def test_a_graph_may_forbid_ids_itself(tmp_path: Path, form: str) -> None:
    model = load(graphs.write(tmp_path, LAYOUTS[form].with_(masked=5)))
    assert model.supports == graphs.shared(form).supports
    [step] = Pipeline(model).decode([IDS], max_new_tokens=1)
    assert (step.raw_logits == -np.inf).nonzero().tolist() == [[0, 5]]


def _without_numbers(graph: Any) -> None:
    graph.initializer.append(TensorProto(name="n", data_type=TensorProto.INT64, dims=[1]))
    graph.node.append(helper.make_node("Sub", ["position_ids", "n"], ["far"]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_numbers, "cannot be read as an ONNX graph"),
        (lambda g: g.output.append(helper.make_tensor_value_info("odd", TensorProto.INT8, [])), ""),
        (lambda g: g.input[0].type.tensor_type.ClearField("shape"), ""),
    ],
    ids=["a number without its value", "an output of an odd type", "no shape"],
)
def test_odd_graphs_run_or_are_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    path = graphs.write(tmp_path) / "model.onnx"
    model = onnx.load(path)
    spoil(model.graph)
    if not message and len(model.graph.output) > 5:
        constant = helper.make_tensor("n", TensorProto.INT8, [], [1])
        model.graph.node.append(helper.make_node("Constant", [], ["odd"], value=constant))
    onnx.save(model, path)
    if message:
        says(tmp_path, message)
    else:
        assert greedy(load(tmp_path), IDS) == graphs.greedy(IDS, 6)


@pytest.mark.parametrize("kinds", [[["x"]], [{}], ["full_attention", None]])
def test_kinds_of_layers_that_are_none(tmp_path: Path, kinds: Any) -> None:
    assert load(graphs.write(tmp_path, layer_types=kinds)).context_length == graphs.CONTEXT_LENGTH


def test_a_graph_and_the_name_of_another(tmp_path: Path) -> None:
    path = graphs.write(tmp_path) / "model.onnx"
    with pytest.raises(ModelLoadError, match="is a graph itself; leave `file: other.onnx` out"):
        OnnxRuntime(model=str(path), file="other.onnx", provider="cpu").load()


@pytest.mark.parametrize("form", ["optimum", "learned", "shared_positions", "no_past"])
def test_the_context_ends_with_the_table_of_positions(tmp_path: Path, form: str) -> None:
    graphs.write(tmp_path, LAYOUTS[form].with_(table_length=20), max_position_embeddings=8192)
    assert load(tmp_path).context_length == 20


@pytest.mark.parametrize("window", ["8", 8.0, [8], True])
def test_a_window_that_is_no_number(tmp_path: Path, window: Any) -> None:
    graphs.write(tmp_path, sliding_window=window)
    assert load(tmp_path).context_length == (8 if window == 8.0 else 256)


@pytest.mark.parametrize(
    ("form", "config", "length"),
    [
        (Form(past="shared", positions="columns"), {}, 8),
        (Form(past="shared", positions="columns"), {"layer_types": ["sliding_attention"] * 2}, 8),
        (Form(past="shared", positions="columns"), {"layer_types": ["full_attention"] * 2}, 256),
        (Form(past="shared", positions="columns"), {"use_sliding_window": False}, 256),
        (Form(past="shared", positions="columns"), {"max_position_embeddings": None}, 8),
        (Form(past="shared", positions="columns"), {"max_position_embeddings": 7}, 7),
        (LAYOUTS["shared_windows"], {}, 256),
    ],
)
def test_a_window_that_was_left_out_is_the_end_of_the_context(
    tmp_path: Path, form: Form, config: Any, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Up to there the graph computes what the model does."""
    model = load(graphs.write(tmp_path, form, sliding_window=8, **config))
    assert model.context_length == length
    assert ("attention window of 8 tokens" in caplog.text) == (length == 8)


@pytest.mark.parametrize("number", [None, 8, -8, 7, 9, 80])
@pytest.mark.parametrize("where", ["initializer", "tensor", "value_int"])
@pytest.mark.parametrize("operator", ["Sub", "Add", "LessOrEqual", "Concat"])
def test_a_window_that_no_number_of_the_graph_speaks_of(
    tmp_path: Path, number: int | None, where: str, operator: str
) -> None:
    """A size that happens to be the same number, as in Mistral, is none."""
    path = graphs.write(tmp_path, sliding_window=8) / "model.onnx"
    if number is not None:
        graph = onnx.load(path)
        tensor = onnx.numpy_helper.from_array(np.array(number, np.int64), "window")
        value = {"value_int": number} if where == "value_int" else {"value": tensor}
        if where == "initializer":
            graph.graph.initializer.append(tensor)
        else:
            graph.graph.node.append(onnx.helper.make_node("Constant", [], ["window"], **value))
        more = {"axis": 0} if operator == "Concat" else {}
        graph.graph.node.append(
            onnx.helper.make_node(operator, ["position_ids", "window"], ["far"], **more)
        )
        onnx.save(graph, path)
    has_window = number in (8, -8, 7) and operator != "Concat"
    settings = Settings(tmp_path)
    assert settings.context_length(look_into(path)) == (256 if has_window else 8)


# --- sizes --------------------------------------------------------------------------------


def test_sizes_that_the_graph_leaves_open_come_from_the_config(tmp_path: Path) -> None:
    form = Form(open_sizes=True)
    assert greedy(load(graphs.write(tmp_path, form)), IDS) == graphs.greedy(IDS, 6)


@pytest.mark.parametrize("past", ["optimum", "shared"])
def test_sizes_that_the_graph_leaves_open_come_from_genai(tmp_path: Path, past: Any) -> None:
    form = Form(past=past, positions="columns", embedding="rotary", open_sizes=True)
    graphs.write(tmp_path, form)
    (tmp_path / "config.json").unlink()
    decoder = {"head_size": graphs.HEAD_DIM, "num_key_value_heads": graphs.NUM_KV_HEADS}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"decoder": decoder}}))
    assert greedy(load(tmp_path), IDS) == graphs.greedy(IDS, 6)


@pytest.mark.parametrize(
    ("missing", "what"),
    [("head_dim", "width of the heads"), ("num_key_value_heads", "number of key heads")],
)
def test_sizes_that_nobody_says(tmp_path: Path, missing: str, what: str) -> None:
    facts = {missing: None, "num_attention_heads": None}
    graphs.write(tmp_path, Form(past="shared", positions="columns", open_sizes=True), **facts)
    says(tmp_path, f"says the {what} of 'past_key_values.0.(key|value)'")


def test_a_wrong_size_in_the_config(tmp_path: Path) -> None:
    form = Form(past="shared", positions="columns", open_sizes=True)
    graphs.write(tmp_path, form, head_dim=8)
    says(tmp_path, "does not run: ")


def test_the_context_length_is_the_least_that_is_said(tmp_path: Path) -> None:
    graphs.write(tmp_path, max_position_embeddings=128)
    assert load(tmp_path).context_length == 128
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"context_length": 77}}))
    assert load(tmp_path).context_length == 77


def test_no_context_length_is_said(tmp_path: Path) -> None:
    form = LAYOUTS["no_positions"]
    model = load(graphs.write(tmp_path, form, max_position_embeddings=None))
    assert model.context_length is None
    assert greedy(model, IDS) == graphs.greedy(IDS, 6, form)


def test_end_tokens_are_the_union_of_all_files(tmp_path: Path) -> None:
    graphs.write(tmp_path, eos_token_id=3)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 5]}))
    genai = {"model": {"eos_token_id": [6, 1000]}}
    (tmp_path / "genai_config.json").write_text(json.dumps(genai))
    assert load(tmp_path).eos_token_ids == {3, 4, 5, 6}


def test_end_tokens_that_are_no_ids(tmp_path: Path) -> None:
    graphs.write(tmp_path, eos_token_id="</s>")
    says(tmp_path, "eos_token_id is '</s>'")


@pytest.mark.parametrize(
    "facts",
    [{"sliding_window": 4}, {"alibi": True}, {"model_type": "bloom"}, {"attention_chunk_size": 8}],
)
def test_keys_may_be_left_out_only_where_every_layer_sees_all(tmp_path: Path, facts: Any) -> None:
    assert "positions" in load(graphs.write(tmp_path / "all")).supports
    assert "positions" not in load(graphs.write(tmp_path / "some", **facts)).supports


# --- the types of inputs -----------------------------------------------------------------


@pytest.mark.parametrize("ids_type", ["int32", "int64"])
@pytest.mark.parametrize("mask_type", ["int32", "int64", "float32", "float16", "bool"])
def test_every_type_of_ids_and_mask(tmp_path: Path, ids_type: str, mask_type: str) -> None:
    """ONNX-14: the mask is as wide as past and new tokens together, in the type of the graph."""
    for past in ("optimum", "shared"):
        positions = "columns" if past == "shared" else "given"
        form = Form(past=past, positions=positions, ids_type=ids_type, mask_type=mask_type)
        model = load(graphs.write(tmp_path / past, form))
        pipeline = Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=4)])
        for prompts in ([IDS], [IDS, IDS[:2]]):
            assert [list(each.token_ids) for each in pipeline.generate(prompts)] == [
                graphs.greedy(ids, 4) for ids in prompts
            ]


@pytest.mark.parametrize("past", ["optimum", "shared", "none"])
def test_half_precision(tmp_path: Path, past: Any) -> None:
    form = Form(past=past, positions="columns", dtype="float16")
    model = load(graphs.write(tmp_path, form))
    cache = model.new_cache(state := _state(model, [IDS]))
    given = model(state.token_ids, cache)
    assert given.dtype == torch.float32
    assert (given[0] - graphs.logits(IDS)[-1]).abs().max() < 0.1
    assert model.describe()["dtype"] == "float16"


def _state(model: Any, prompts: list[list[int]]) -> Any:
    from genkit.core.random import RowRandom
    from genkit.core.state import GenerationState

    rng = RowRandom([0] * len(prompts), [0] * len(prompts))
    return GenerationState(prompts, [64] * len(prompts), rng, device=model.device)


def test_a_precision_that_the_provider_cannot_compute(tmp_path: Path) -> None:
    """The CPU has no operator for it; ONNX Runtime says so, and genkit what may help."""
    graphs.write(tmp_path, Form(dtype="bfloat16"))
    says(tmp_path, "NOT_IMPLEMENTED.*another precision or provider")


# --- vocabularies ------------------------------------------------------------------------


class Words:
    """A tokenizer of which only its size matters."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.eos_token_id = None
        self.special_token_ids = frozenset[int]()

    def decode(self, token_ids: Any) -> str:
        return " ".join(map(str, token_ids))


def test_logits_that_are_narrower_than_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VOCAB-02: an error, before anything is run."""
    graphs.write(tmp_path)
    monkeypatch.setattr(OnnxRuntime, "_tokenizer", lambda *_: Words(98))
    with pytest.raises(ModelLoadError, match="has 98 ids and the model gives logits for 97 only"):
        load(tmp_path)


CHAIN = [
    processors.RepetitionPenalty(penalty=1.3),
    processors.Temperature(temperature=0.9),
    processors.TopK(k=40),
    processors.TopP(p=0.95),
    processors.MinP(min_p=0.01),
]


@pytest.mark.parametrize("past", ["optimum", "shared"])
def test_logits_that_are_wider_than_the_tokenizer(
    tmp_path: Path, past: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VOCAB-02: every processor works on the width that the graph has, and no id is made up."""
    graphs.write(tmp_path, Form(past=past, positions="columns", favourite=96))
    monkeypatch.setattr(OnnxRuntime, "_tokenizer", lambda *_: Words(50))
    model = load(tmp_path)
    assert model.vocab_size == 97
    limit = [stopping.MaxNewTokens(limit=8)]
    result = Pipeline(model, processors=CHAIN, stop_criteria=limit).generate(IDS, seed=1)
    assert len(result.token_ids) == 8 and max(result.token_ids) < 50


# --- fingerprints ------------------------------------------------------------------------


def test_the_fingerprint_is_that_of_all_files(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        graphs.write(tmp_path / name, external=True)
    data = tmp_path / "three" / "model.onnx.data"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    one, two, three = (load(tmp_path / name) for name in ("one", "two", "three"))
    assert one.fingerprint() == two.fingerprint() != three.fingerprint()
    rounded = load(tmp_path / "one", cache_dtype="bfloat16")
    assert rounded.fingerprint() != one.fingerprint()


def test_no_fingerprint_is_taken_of_files_that_have_changed(tmp_path: Path) -> None:
    model = load(graphs.write(tmp_path))
    graphs.write(tmp_path, Form(mask_type="int32"))
    with pytest.raises(UnsupportedError, match="has changed since the model was loaded"):
        model.fingerprint()
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(UnsupportedError, match="has changed since the model was loaded"):
        model.fingerprint()


@pytest.mark.parametrize("past", ["optimum", "shared"])
def test_prefixes_are_kept_on_disk(
    tmp_path: Path, past: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path / "home"))
    folder = graphs.write(tmp_path / "model", Form(past=past, positions="columns"))
    prompt = IDS * 6

    def run(model: Any) -> list[int]:
        stop = [stopping.MaxNewTokens(limit=4)]
        return list(
            Pipeline(model, cache=Prefix(disk=True), stop_criteria=stop).generate(prompt).token_ids
        )

    first = run(load(folder))
    again = load(folder)
    lengths = []
    forward = type(again)._feed

    def watching(self: Any, input_ids: Any, cache: Any, n: int) -> Any:
        lengths.append(input_ids.shape[1])
        return forward(self, input_ids, cache, n)

    monkeypatch.setattr(type(again), "_feed", watching)
    assert run(again) == first == graphs.greedy(prompt, 4)
    assert lengths[0] < len(prompt)


# --- options ------------------------------------------------------------------------------


def test_options_are_checked() -> None:
    for wrong in ({"threads": 0}, {"prefill_chunk": 0}, {"optimization": "much"}, {"typo": 1}):
        with pytest.raises(Exception, match=next(iter(wrong))):
            OnnxRuntime(model="x", **wrong)


@pytest.mark.parametrize("cache_dtype", ["float16", "bfloat16"])
def test_a_past_kept_in_half_the_memory(tmp_path: Path, cache_dtype: str) -> None:
    graphs.write(tmp_path)
    whole, half = load(tmp_path), load(tmp_path, cache_dtype=cache_dtype)
    states = [_state(model, [IDS, IDS[:3]]) for model in (whole, half)]
    caches = [model.new_cache(state) for model, state in zip((whole, half), states, strict=True)]
    whole(states[0].token_ids, caches[0])
    half(states[1].token_ids, caches[1])
    assert 2 * caches[1].num_bytes == caches[0].num_bytes > 0
    exact, rounded = caches[0].layers[0][0], caches[1].layers[0][0]
    assert torch.equal(exact.to(getattr(torch, cache_dtype)), rounded)
    step = torch.tensor([[7], [9]])
    error = float((whole(step, caches[0]) - half(step, caches[1])).abs().max())
    assert 0 < error < 0.2
    assert torch.equal(caches[1].layers[0][0][:, :, : len(IDS)], rounded)  # rounded once
    assert half.rounds and not whole.rounds


def test_a_past_that_cannot_be_kept_in_less(tmp_path: Path) -> None:
    graphs.write(tmp_path / "shared", Form(past="shared", positions="columns"))
    says(
        tmp_path / "shared",
        "cache_dtype: float16: .* itself, and in float32",
        cache_dtype="float16",
    )
    graphs.write(tmp_path / "none", Form(past="none"))
    says(tmp_path / "none", "cache_dtype: float16: .* keeps no past", cache_dtype="float16")
    graphs.write(tmp_path / "half", Form(dtype="float16"))
    says(tmp_path / "half", "cache_dtype: bfloat16: .* in float16", cache_dtype="bfloat16")
    assert not load(tmp_path / "half", cache_dtype="float16").rounds


@pytest.mark.parametrize("optimization", ["none", "basic", "extended", "all"])
def test_every_level_of_optimization_gives_the_same_tokens(optimization: str) -> None:
    for name in ("optimum", "shared"):
        model = graphs.load(name, optimization=optimization)
        assert greedy(model, IDS) == graphs.greedy(IDS, 6)


def test_a_memory_that_is_not_there() -> None:
    """The shared buffer is taken at once: an error names its size and what helps."""
    model = graphs.load("shared_positions")
    model.context_length = 10**12
    with pytest.raises(UnsupportedError, match=r"no memory for .* columns .*max_new_tokens"):
        Pipeline(model, stop_criteria=[]).generate(IDS)


def test_a_registered_name(tmp_path: Path) -> None:
    folder = graphs.write(tmp_path)
    models = {"tiny": {"model": str(folder), "threads": 1}}
    model = OnnxRuntime(model="tiny", provider="cpu").load(models=models)
    assert greedy(model, IDS) == graphs.greedy(IDS, 6)


def test_the_backend_is_known_by_name() -> None:
    assert "onnxruntime" in Kit(entry_points=False).registry.names("backend")
