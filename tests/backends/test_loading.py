"""What a folder, a name or an option may be, and what is said when it is wrong."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import genkit.backends.hub as hub
from genkit.backends import PyTorch
from genkit.errors import ModelLoadError, OptionError, UnknownNameError

MARKER = "this code ran"
CODE = f"""
import pathlib
pathlib.Path(__file__).with_name({MARKER!r}).touch()
class Config: pass
"""


# --- folders -----------------------------------------------------------------------------


def test_a_folder_loads_with_its_tokenizer(save_folder: Any, lab: Any) -> None:
    folder = save_folder()
    model = PyTorch(model=str(folder)).load()
    assert model.module.dtype == torch.float32
    assert not model.module.training
    assert model.tokenizer is not None
    assert model.tokenizer.decode(model.tokenizer.encode("!#5")) == "!#5"
    ids = lab.prompt(9)
    expected = lab.greedy(lab.shared("llama"), [ids], 8)
    assert lab.greedy(model, [ids], 8) == expected


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "auto"])
def test_dtype(dtype: str, save_folder: Any) -> None:
    model = PyTorch(model=str(save_folder()), dtype=dtype).load()
    expected = torch.float32 if dtype == "auto" else getattr(torch, dtype)
    assert {parameter.dtype for parameter in model.module.parameters()} == {expected}


def test_device(save_folder: Any, device: str) -> None:
    assert PyTorch(model=str(save_folder()), device=device).load().device.type == device


def test_attention(save_folder: Any) -> None:
    model = PyTorch(model=str(save_folder()), attention="eager").load()
    assert model.describe()["attention"] == "eager"


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no model folder"):
        PyTorch(model=str(tmp_path)).load()


def test_a_folder_without_weights(save_folder: Any) -> None:
    folder = save_folder()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match="has no weights"):
        PyTorch(model=str(folder)).load()


def test_a_folder_without_tokenizer(save_folder: Any) -> None:
    folder = save_folder(tokenizer=False)
    with pytest.raises(ModelLoadError, match=r"no tokenizer .*PyTorch\.wrap"):
        PyTorch(model=str(folder)).load()


def test_another_tokenizer_can_be_named(save_folder: Any, tmp_path: Path) -> None:
    folder = save_folder()
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for path in folder.glob("tokenizer*"):
        path.rename(tokenizer / path.name)
    assert PyTorch(model=str(folder), tokenizer=str(tokenizer)).load().tokenizer is not None


def test_pickled_weights_are_read_only_where_the_recipe_says_so(save_folder: Any, lab: Any) -> None:
    folder = save_folder()
    (folder / "model.safetensors").unlink()
    torch.save(lab.build("llama").state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="allow_pickle: true"):
        PyTorch(model=str(folder)).load()
    assert PyTorch(model=str(folder), allow_pickle=True).load().vocab_size == 97


def test_weights_that_are_cut_short(save_folder: Any) -> None:
    path = save_folder() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelLoadError, match=str(path.parent)):
        PyTorch(model=str(path.parent)).load()


def test_weights_that_leave_parts_at_random(save_folder: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = save_folder() / "model.safetensors"
    weights = load_file(path)
    del weights["model.norm.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"1 weights are missing: model\.norm\.weight"):
        PyTorch(model=str(path.parent)).load()


def _change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_weights_of_layers_that_the_config_does_not_say(save_folder: Any) -> None:
    folder = save_folder()
    _change_config(folder, num_hidden_layers=1)
    with pytest.raises(ModelLoadError, match=r"beyond the 1 .*model\.layers\.1\."):
        PyTorch(model=str(folder)).load()
    _change_config(folder, num_hidden_layers=0)
    with pytest.raises(ModelLoadError, match=r"config\.json: a model of 0 layers"):
        PyTorch(model=str(folder)).load()


def test_other_weights_without_use_are_told(save_folder: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = save_folder() / "model.safetensors"
    weights = load_file(path)
    weights["vision_tower.encoder.layers.7.weight"] = torch.zeros(2)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"does not use 1 weights: vision_tower"):
        PyTorch(model=str(path.parent)).load()


def test_weights_of_other_shapes(save_folder: Any) -> None:
    folder = save_folder()
    _change_config(folder, intermediate_size=40)
    with pytest.raises(ModelLoadError, match=r"than config\.json says: .*\[.*48.*40") as caught:
        PyTorch(model=str(folder)).load()
    assert "ignore_mismatched" not in str(caught.value)


def test_quantised_weights_that_nothing_explains(save_folder: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = save_folder() / "model.safetensors"
    weights = load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    weights[name] = weights[name].to(torch.int8)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"up_proj\.weight is stored as I8"):
        PyTorch(model=str(path.parent)).load()


@pytest.mark.parametrize("value", ["x", [[1]]])
def test_end_ids_that_are_none(value: Any, save_folder: Any) -> None:
    folder = save_folder()
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(ModelLoadError, match=r"generation_config\.json: eos_token_id is"):
        PyTorch(model=str(folder)).load()


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, '{"model_type": "nothing-known"}'])
def test_a_config_that_cannot_be_used(content: str, save_folder: Any) -> None:
    folder = save_folder()
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        PyTorch(model=str(folder)).load()


def test_a_head_that_is_stored_although_it_is_tied(save_folder: Any) -> None:
    """VOCAB-07: what is stored is used; one that is not equal to the embeddings is told of."""
    from safetensors.torch import load_file, save_file

    path = save_folder(tie_word_embeddings=True) / "model.safetensors"
    weights = load_file(path)
    embeddings = weights["model.embed_tokens.weight"]
    for head in (embeddings.clone(), embeddings + 1):
        weights["lm_head.weight"] = head
        save_file(weights, path, metadata={"format": "pt"})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module = PyTorch(model=str(path.parent)).load().module
        told = [str(each.message) for each in caught if "ties the head" in str(each.message)]
        assert len(told) == (0 if torch.equal(head, embeddings) else 1)
        assert torch.equal(module.lm_head.weight, head)
        assert torch.equal(module.model.embed_tokens.weight, embeddings)


# --- code and questions ------------------------------------------------------------------


def test_no_code_of_a_model_runs_and_nothing_is_asked(
    save_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any) -> str:
        raise AssertionError("a question was asked")

    monkeypatch.setattr("builtins.input", asked)
    folder = save_folder()
    (folder / "code.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    start = time.monotonic()
    with pytest.raises(ModelLoadError, match="trust_remote_code: true"):
        PyTorch(model=str(folder)).load()
    assert time.monotonic() - start < 1
    assert not (folder / MARKER).exists()


def test_a_known_model_that_also_brings_code_is_loaded_without_it(save_folder: Any) -> None:
    folder = save_folder()
    (folder / "code.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    assert PyTorch(model=str(folder)).load().vocab_size == 97
    assert not (folder / MARKER).exists()


def test_no_code_of_a_tokenizer_runs(save_folder: Any) -> None:
    folder = save_folder()
    (folder / "code.py").write_text(CODE)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["code.Own", None]}}
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelLoadError, match=r"tokenizer .* needs Python code"):
        PyTorch(model=str(folder)).load()
    assert not (folder / MARKER).exists()


# --- names -------------------------------------------------------------------------------


def test_a_registered_name(save_folder: Any) -> None:
    folder = save_folder()
    for source in (str(folder), folder, lambda: folder, {"model": folder, "dtype": "float64"}):
        model = PyTorch(model="tiny").load(models={"tiny": source})
        assert model.name == "tiny"
    assert model.module.dtype == torch.float64


def test_options_of_the_recipe_go_before_those_of_the_registered_name(save_folder: Any) -> None:
    source = {"model": save_folder(), "dtype": "float64"}
    model = PyTorch(model="tiny", dtype="bfloat16").load(models={"tiny": source})
    assert model.module.dtype == torch.bfloat16


def test_a_misspelt_name_gets_the_nearest_and_all_kinds_of_names() -> None:
    with pytest.raises(UnknownNameError, match=r"'smollm2'\?.* local folder, a \.gguf file"):
        PyTorch(model="smolm2").load(models={"smollm2": "x/y"})


@pytest.mark.parametrize("name", ["./nothing", "~/nothing", "/nothing", "nothing.gguf"])
def test_a_path_where_nothing_is(name: str) -> None:
    with pytest.raises(ModelLoadError, match="no file or folder"):
        PyTorch(model=name).load()


def test_without_a_connection_the_error_is_short_and_quick(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(hub.HfApi, "model_info", refuse)
    start = time.monotonic()
    with pytest.raises(ModelLoadError, match=r"cannot be fetched .*no route to host") as error:
        PyTorch(model="owner/no-such-model").load()
    assert time.monotonic() - start < 5
    assert len(str(error.value)) < 300


def test_only_hub_models_have_revisions(save_folder: Any) -> None:
    with pytest.raises(ModelLoadError, match="revision"):
        PyTorch(model=str(save_folder()), revision="main").load()


def test_encoder_decoder_folders_are_refused_before_their_weights_are_read(
    save_folder: Any,
) -> None:
    folder = save_folder()
    (folder / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ModelLoadError, match="encoder-decoder"):
        PyTorch(model=str(folder)).load()


# --- options -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"), [("dtype", "int8"), ("device", "tpu"), ("attention", "fast")]
)
def test_wrong_options(option: str, value: str) -> None:
    with pytest.raises(OptionError, match=value):
        PyTorch(model="x", **{option: value})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_where_there_is_none(device: str, save_folder: Any) -> None:
    with pytest.raises(ModelLoadError, match="CUDA"):
        PyTorch(model=str(save_folder()), device=device).load()


def test_importing_the_backend_imports_no_transformers() -> None:
    import subprocess
    import sys

    code = (
        "import sys, genkit.backends; genkit.backends.PyTorch(model='x');"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
