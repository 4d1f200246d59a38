"""What an export leaves behind: a whole folder, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from genkit import Kit, Pipeline, caches
from genkit.backends import OnnxRuntime, PyTorch
from genkit.errors import InputError, ModelLoadError, UnknownNameError, UnsupportedError
from genkit.exporters import export
from genkit.exporters.exporting import copy_settings
from table_exporter import Table

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "out"


def nothing_is_left(out: Path) -> bool:
    return list(out.parent.iterdir()) == []


def test_an_export_is_a_folder_with_graph_settings_and_report(
    table_folder: Path, out: Path
) -> None:
    lines: list[str] = []
    done = export(str(table_folder), out, Table(), progress=lines.append)
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "generation_config.json",
        "genkit_export.json",
        "model.onnx",
        "own_config.json",
        "tokenizer_config.json",
    ]
    assert list(out.parent.iterdir()) == [out]
    assert lines == ["writing the table", "comparing the graph with the model"]
    assert done.comparison.max_logit_error < 1e-5
    report = json.loads((out / "genkit_export.json").read_text())
    assert report == {key: value for key, value in done.to_dict().items() if key != "path"}
    assert (report["source"], report["exporter"], report["precision"]) == (
        str(table_folder),
        "table",
        "fp32",
    )
    assert len(report["shapes"]) == 12
    assert report["versions"]["torch"] == torch.__version__


def test_the_folder_is_a_model_that_gives_the_tokens_of_its_source(
    table_folder: Path, out: Path
) -> None:
    export(str(table_folder), out, Table())
    source = PyTorch.wrap(zoo_model(table_folder))
    exported = OnnxRuntime(model=str(out), provider="cpu").load()
    tokens = [
        Pipeline(model, cache=caches.NoCache()).generate([3, 1, 4], max_new_tokens=8).token_ids
        for model in (source, exported)
    ]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("kind", ["link", "dangling", "here", "long"])
def test_places_where_no_folder_can_appear(
    table_folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused before any work, with what to do."""
    place = tmp_path / ("x" * 250 if kind == "long" else kind)
    if kind in ("link", "dangling"):
        target = tmp_path / "target"
        place.symlink_to(target)
        if kind == "link":
            target.mkdir()
    if kind == "here":
        place.mkdir()
        monkeypatch.chdir(place)
        place = Path(".")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="name a new|name another"):
        export(str(table_folder), place, Table(), progress=pytest.fail)
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_that_is_taken_meanwhile(table_folder: Path, out: Path) -> None:
    def take(line: str) -> None:
        if line.startswith("comparing"):
            out.write_text("another")

    with pytest.raises(InputError, match="has been taken meanwhile"):
        export(str(table_folder), out, Table(), progress=take)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_an_exporter_that_writes_nothing(table_folder: Path, out: Path) -> None:
    class Idle(Table):
        def write(self, source: Path, out: Path, progress: Any) -> None:
            """Nothing."""

    with pytest.raises(UnsupportedError, match="'table' has written no graph"):
        export(str(table_folder), out, Idle())
    assert nothing_is_left(out)


def test_the_context_is_that_of_the_source_whatever_its_settings_say(
    table_folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RoBERTa's table of positions is longer than its texts may be."""
    wrap = PyTorch.wrap

    def shorter(module: Any, *arguments: Any) -> Any:
        model = wrap(module, *arguments)
        model.context_length = 17
        return model

    monkeypatch.setattr(PyTorch, "wrap", staticmethod(shorter))
    assert export(str(table_folder), out, Table()).context_length == 17
    assert OnnxRuntime(model=str(out), provider="cpu").load().context_length == 17


def zoo_model(folder: Path) -> Any:
    from genkit.exporters.source import load_module

    return load_module(folder)


def test_a_float32_graph_that_computes_something_else_does_not_appear(
    save: Callable[..., Path], out: Path
) -> None:
    with pytest.raises(UnsupportedError, match="does not compute what it should"):
        export(str(save("llama")), out, Table())
    assert nothing_is_left(out)


def test_what_another_precision_loses_is_measured(save: Callable[..., Path], out: Path) -> None:
    done = export(str(save("llama")), out, Table(precision="int8"))
    assert done.comparison.max_logit_error > 1
    report = json.loads((out / "genkit_export.json").read_text())
    assert report["max_logit_error"] == done.comparison.max_logit_error


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        ("environment", UnsupportedError, "needs a table"),
        ("refuse", UnsupportedError, "has no table"),
        ("numbers", UnsupportedError, "computes nonsense"),
        ("interrupt", KeyboardInterrupt, None),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_whatever_fails_leaves_what_was_there(
    table_folder: Path, out: Path, spoil: Any, error: Any, message: str | None, exists: bool
) -> None:
    if exists:
        out.mkdir()
    with pytest.raises(error, match=message):
        export(str(table_folder), out, Table(precision="int4", spoil=spoil))
    assert list(out.parent.iterdir()) == ([out] if exists else [])
    assert not exists or list(out.iterdir()) == []


def test_an_empty_folder_is_filled(table_folder: Path, out: Path) -> None:
    out.mkdir()
    export(str(table_folder), out, Table())
    assert (out / "model.onnx").is_file()


def test_a_place_that_is_taken_is_refused_before_anything_is_done(out: Path) -> None:
    out.mkdir()
    (out / "mine").write_text("mine")
    with pytest.raises(InputError, match="is not empty; name a new folder"):
        export("no-such-model", out, Table(spoil="environment"))
    with pytest.raises(InputError, match="mine is a file"):
        export("no-such-model", out / "mine", Table())
    with pytest.raises(InputError, match="there is no folder .*nowhere to make out in"):
        export("no-such-model", out.parent / "nowhere" / "out", Table())
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_a_model_that_cannot_be_loaded_leaves_nothing(out: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelLoadError, match=r"has no config\.json"):
        export(str(tmp_path / "empty"), out, Table())
    with pytest.raises(UnknownNameError, match="no-such-model"):
        export("no-such-model", out, Table())
    assert nothing_is_left(out)


def test_a_registered_name_is_found_by_a_kit(table_folder: Path, out: Path) -> None:
    class Named:
        from genkit.plugins import hookimpl

        @hookimpl
        def genkit_register_models(self) -> Any:
            return {"named": {"model": table_folder, "dtype": "float64"}}

    kit = Kit([Named()], entry_points=False)
    assert kit.export(Table(), "named", out).source == "named"
    with pytest.raises(UnknownNameError) as caught:
        kit.export(Table(), "table", out.with_name("other"))
    assert caught.value.known == ["named"]
    with pytest.raises(UnknownNameError) as caught:
        kit.export(Table(), "greedy", out.with_name("other"))
    assert "'greedy' is the name of a sampler" in caught.value.__notes__[0]


def test_settings_and_tokenizer_are_the_source_s_and_weights_stay_behind(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "made"
    source.mkdir()
    out.mkdir()
    kept = ("config.json", "generation_config.json", "genkit.json", "tokenizer.json", "vocab.json")
    kept += ("tokenizer_config.json", "chat_template.jinja", "merges.txt", "tokenizer.model")
    weights = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    for name in (*kept, *weights, "genai_config.json", "README.md"):
        (source / name).write_text("source")
    for name in ("tokenizer_config.json", "genai_config.json"):
        (out / name).write_text("exporter")
    copy_settings(source, out)
    assert sorted(path.name for path in out.iterdir()) == sorted((*kept, "genai_config.json"))
    assert {name: (out / name).read_text() for name in kept} == dict.fromkeys(kept, "source")
    assert (out / "genai_config.json").read_text() == "exporter"


def test_an_encoder_decoder_is_refused_by_name(tmp_path: Path, out: Path) -> None:
    import transformers

    config = transformers.T5Config(vocab_size=zoo.VOCAB_SIZE, d_model=8, d_ff=8, num_layers=1)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    with pytest.raises(ModelLoadError, match="is an encoder-decoder model"):
        export(str(tmp_path / "t5"), out, Table())
    assert nothing_is_left(out)
