"""A graph runs on the provider that was asked for, and on no other without a word."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import graphs
from genkit.backends import onnx_session
from genkit.backends.onnxruntime_ import OnnxRuntime
from genkit.errors import ModelLoadError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
without_cuda = pytest.mark.skipif(
    CUDA in onnxruntime.get_available_providers(), reason="ONNX Runtime is built with CUDA"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graphs.write(tmp_path_factory.mktemp("graph"))


@pytest.fixture
def pretends_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime says that it has CUDA; sessions then run on the CPU, with a line in a log."""
    session = onnxruntime.InferenceSession

    def open_on_the_cpu(path: str, options: Any, providers: Any) -> Any:
        return session(path, options, providers=[CPU])

    monkeypatch.setattr(onnx_session.ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(onnx_session.ort, "InferenceSession", open_on_the_cpu)


def load(folder: Path, **options: Any) -> Any:
    return OnnxRuntime(model=str(folder), threads=1, **options).load()


@pytest.mark.parametrize("provider", ["cpu", CPU])
def test_the_provider_that_was_asked_for(folder: Path, provider: str) -> None:
    model = load(folder, provider=provider)
    assert model.provider == CPU
    described = model.describe()
    assert (described["provider"], described["device"]) == (CPU, "cpu")
    assert described["graph"] == str(folder / "model.onnx")


@without_cuda
def test_auto_is_the_cpu_where_there_is_nothing_else(folder: Path) -> None:
    assert load(folder).provider == CPU


@without_cuda
@pytest.mark.parametrize("provider", ["cuda", CUDA])
def test_cuda_that_is_not_built_in_is_an_error(folder: Path, provider: str) -> None:
    """ONNX-19: the reason, and what to install."""
    with pytest.raises(ModelLoadError, match=f"built without {CUDA}; it has .*onnxruntime-gpu"):
        load(folder, provider=provider)


def test_a_provider_that_nobody_knows(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match=f"'abacus': .*built without abacus; it has .*{CPU}"):
        load(folder, provider="abacus")


@pytest.mark.usefixtures("pretends_cuda")
def test_a_session_that_silently_runs_elsewhere_is_an_error(folder: Path) -> None:
    """ONNX-19, ONNX-20: what counts is the session's own list, after it was made."""
    with pytest.raises(ModelLoadError, match=f"could not start {CUDA} .* would run on {CPU}"):
        load(folder, provider="cuda")


@pytest.mark.usefixtures("pretends_cuda")
def test_auto_falls_back_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ONNX-19: the model names what it really runs on."""
    with caplog.at_level(logging.WARNING):
        model = load(folder, provider_options={"device_id": 0})
    assert model.describe()["provider"] == CPU
    assert f"running on the CPU: ONNX Runtime could not start {CUDA}" in caplog.text


def test_options_that_the_cpu_does_not_have(folder: Path) -> None:
    """ONNX Runtime itself would pass over them."""
    with pytest.raises(ModelLoadError, match=f"provider_options: {CPU} has none, found 'typo'"):
        load(folder, provider="cpu", provider_options={"typo": 1})


def test_options_reach_the_provider_as_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def refuse(path: str, options: Any, providers: Any) -> Any:
        given.extend(providers)
        raise RuntimeError("[ONNXRuntimeError] : 11 :\n Unknown provider option: typo")

    monkeypatch.setattr(onnx_session.ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(onnx_session.ort, "InferenceSession", refuse)
    wanted: Any = {"device_id": 1, "use_tf32": False, "arena": "same"}
    with pytest.raises(ModelLoadError, match=r"model\.onnx: 11 : Unknown provider option: typo$"):
        load(folder, provider="cuda", provider_options=wanted)
    assert given == [(CUDA, {"device_id": "1", "use_tf32": "0", "arena": "same"})]


def test_threads_and_level_reach_the_session(folder: Path) -> None:
    session = load(folder, provider="cpu", optimization="basic").session
    options = session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.graph_optimization_level == onnx_session.LEVELS["basic"]


def test_every_level_is_one_of_onnx_runtime(folder: Path) -> None:
    field = OnnxRuntime.model_fields["optimization"].annotation
    assert set(onnx_session.LEVELS) == set(field.__args__)  # type: ignore[union-attr]
    assert len(set(onnx_session.LEVELS.values())) == 4
