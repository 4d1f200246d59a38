"""The exporters that come with genkit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from exporting import needs_genai, needs_optimum, needs_tracer, tokenizer
from genkit import Pipeline
from genkit.backends import OnnxRuntime, PyTorch
from genkit.errors import MissingPackageError, OptionError, UnsupportedError
from genkit.exporters import Exporter, GenAI, Optimum, Transformers, export, packages
from genkit.exporters.source import load_module

BUILT_IN = {"genai": GenAI, "optimum": Optimum, "transformers": Transformers}


# --- what is refused, and how ------------------------------------------------------------


@pytest.mark.parametrize("exporter", BUILT_IN.values())
def test_a_package_that_is_missing_is_named_with_the_extra(
    exporter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'lm-genkit\[export\]'"):
        exporter().check_ready()


def versions(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """Pretend that these are installed and nothing else."""
    known = {name.replace("_", "-"): number for name, number in found.items()}
    for module in ("packages", "optimum_", "transformers_"):
        monkeypatch.setattr(f"genkit.exporters.{module}.version", known.get)
    monkeypatch.setattr(packages, "find_spec", lambda name: name)


def test_optimum_in_an_environment_of_transformers_5_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions(monkeypatch, transformers="5.24.0")
    with pytest.raises(MissingPackageError) as caught:
        Optimum().check_ready()
    [line] = str(caught.value).splitlines()
    for words in ("4.57", "5.24.0", "lm-genkit[optimum]", "--set python=optimum/bin/python"):
        assert words in line


def test_optimum_in_an_environment_of_transformers_4_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions(monkeypatch, transformers="4.57.6")
    with pytest.raises(MissingPackageError, match=r"not installed: pip install '.*\[optimum\]'$"):
        Optimum().check_ready()


def test_an_interpreter_without_optimum_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    python = tmp_path / "python"
    error = "ModuleNotFoundError: No module named 'optimum'"
    python.write_text(f'#!/bin/sh\necho "{error}"\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(UnsupportedError, match=r"cannot use .*/python: No module named 'optimum'"):
        Optimum(python=str(python)).check_ready()


def test_the_exporter_of_transformers_5_is_not_there_in_4(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, transformers="4.57.6")
    with pytest.raises(UnsupportedError, match=r"4\.57\.6 is installed"):
        Transformers().check_ready()


@pytest.mark.parametrize(
    ("found", "precision", "name"),
    [
        ({"transformers": "5.24.0"}, "fp32", "genai"),
        ({"transformers": "5.24.0"}, "int4", "genai"),
        ({"transformers": "5.24.0"}, "fp16", "transformers"),
        ({"transformers": "4.57.6"}, "fp16", "optimum"),
    ],
)
def test_who_names_no_exporter_gets_one_that_can(
    monkeypatch: pytest.MonkeyPatch, found: Any, precision: str, name: str
) -> None:
    versions(monkeypatch, **found)
    assert packages.usual_exporter(precision) == name
    assert BUILT_IN[name].model_fields["precision"] is not None


def test_without_the_model_builder_transformers_is_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    monkeypatch.setattr(packages, "version", lambda name: "5.24.0")
    assert packages.usual_exporter("fp32") == "transformers"


@needs_genai
def test_a_float16_graph_of_the_model_builder_is_for_cuda() -> None:
    with pytest.raises(UnsupportedError, match="fp16 graphs for CUDA only"):
        GenAI(precision="fp16").check_ready()
    GenAI(precision="fp16", provider="cuda").check_ready()
    assert GenAI(provider="cuda").graph_provider == "cuda"


def test_precisions_that_are_not_offered_are_refused_with_those_that_are() -> None:
    with pytest.raises(OptionError, match="'fp32', 'int8' or 'int4', found 'fp16'"):
        Optimum(precision="fp16")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'fp32', 'fp16', 'int8' or 'int4', found 'int2'"):
        Transformers(precision="int2")  # type: ignore[arg-type]


@needs_genai
def test_the_model_builder_wants_a_tokenizer(save: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="needs the model's tokenizer"):
        GenAI().write(save("llama"), tmp_path / "out", pytest.fail)


@needs_genai
@pytest.mark.parametrize("sizes", [{}, {"head_dim": 24}, {"head_dim": None, "hidden_size": 64}])
def test_heads_that_the_operator_of_the_model_builder_does_not_take(
    save: Callable[..., Path], tmp_path: Path, sizes: Any
) -> None:
    folder = save("llama", **sizes)
    tokenizer().save_pretrained(folder)
    with pytest.raises(UnsupportedError, match="a multiple of 16, and here it is (8|24);"):
        GenAI().write(folder, tmp_path / "out", pytest.fail)


# --- the real ones -----------------------------------------------------------------------


def check(folder: Path, out: Path, exporter: Exporter) -> Any:
    """Export, and generate with the graph what the source generates."""
    done = export(str(folder), out, exporter)
    if exporter.precision == "fp32":
        assert done.comparison.max_logit_error < 1e-4  # ONNX-16
        source = PyTorch.wrap(load_module(folder))
        exported = OnnxRuntime(model=str(out), provider="cpu").load()
        prompts = [zoo.prompt(n, seed=n) for n in (12, 3, 7)]
        expected = Pipeline(source).generate(prompts, max_new_tokens=12)
        found = Pipeline(exported).generate(prompts, max_new_tokens=12)
        assert [row.token_ids for row in found] == [row.token_ids for row in expected]
    return done


@pytest.mark.slow
@needs_tracer
@pytest.mark.parametrize("name", ["llama", "mistral", "bloom"])
def test_a_traced_graph_equals_its_source(
    save: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    """ONNX-16, 17: of a model that sees all, of one with windows, and of one with alibi."""
    check(save(name), tmp_path / "out", Transformers())


@pytest.mark.slow
@needs_tracer
def test_a_traced_graph_computes_the_logits_that_are_asked_for(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    import onnxruntime

    check(save("gpt2"), tmp_path / "out", Transformers())
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    inputs = {port.name: port.shape for port in session.get_inputs()}
    assert inputs["num_logits_to_keep"] == []
    for name, shape in inputs.items():
        sizes = shape[0::2] if name.startswith("input.") else shape  # heads and width are fixed
        assert not any(isinstance(size, int) for size in sizes), name  # ONNX-17


@pytest.mark.slow
@needs_tracer
@pytest.mark.parametrize(("precision", "least"), [("fp16", 105), ("int8", 100), ("int4", 30)])
def test_a_traced_graph_in_other_precisions(
    save: Callable[..., Path], tmp_path: Path, precision: Any, least: int
) -> None:
    done = check(save("llama"), tmp_path / "out", Transformers(precision=precision))
    assert done.comparison.max_logit_error > 1e-4
    assert done.comparison.num_agreeing >= least


@pytest.mark.slow
@needs_tracer
@pytest.mark.parametrize(
    ("name", "reason"),
    [("mamba", "MambaForCausalLM keeps a state"), ("gemma3n", "No ONNX function found for")],
)
def test_why_an_architecture_cannot_be_traced_is_one_line(
    save: Callable[..., Path], tmp_path: Path, name: str, reason: str
) -> None:
    folder = save(name)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match=reason) as caught:
        export(str(folder), tmp_path / "out", Transformers())
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
@needs_genai
@pytest.mark.parametrize(("precision", "least"), [("fp32", 111), ("int8", 100), ("int4", 30)])
def test_a_built_graph(
    save: Callable[..., Path], tmp_path: Path, precision: Any, least: int
) -> None:
    folder = save("llama", head_dim=16)  # GroupQueryAttention wants a multiple of 16
    tokenizer().save_pretrained(folder)
    done = check(folder, tmp_path / "out", GenAI(precision=precision))
    assert done.comparison.num_agreeing >= least
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "genai_config.json", "genkit_export.json", "tokenizer.json"} <= names


@pytest.mark.slow
@needs_genai
def test_a_window_that_the_model_builder_leaves_out_is_the_end_of_the_context(
    save: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save("mistral", head_dim=16, sliding_window=40)
    tokenizer().save_pretrained(folder)
    export(str(folder), tmp_path / "out", GenAI())
    assert "without the model's attention window of 40 tokens" in caplog.text
    assert OnnxRuntime(model=str(tmp_path / "out"), provider="cpu").load().context_length == 40


@pytest.mark.slow
@needs_genai
def test_why_the_model_builder_refuses_an_architecture_is_one_line(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    folder = save("gpt2")
    tokenizer().save_pretrained(folder)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match="model is not currently supported") as caught:
        export(str(folder), tmp_path / "out", GenAI())
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
@needs_optimum
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3"])
def test_a_graph_of_optimum_equals_its_source(
    save: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    check(save(name), tmp_path / "out", Optimum())


@pytest.mark.slow
@needs_optimum
def test_a_graph_of_optimum_with_coded_weights(save: Callable[..., Path], tmp_path: Path) -> None:
    done = check(save("llama"), tmp_path / "out", Optimum(precision="int8"))
    assert done.comparison.num_agreeing >= 95
