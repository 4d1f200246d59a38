from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import table_exporter
import zoo

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    table_exporter.table_model().save_pretrained(folder)
    return folder


@pytest.fixture
def export(genkit: Any, model: Path) -> Any:
    """Export with the quick exporter of a plugin."""

    def run(out: Path, *arguments: object, model: object = model) -> Any:
        plugin = ("--plugin", table_exporter.__file__)
        return genkit("export", model, out, *plugin, "--exporter", "table", *arguments)

    return run


def test_json_has_the_keys_of_the_interface(export: Any, tmp_path: Path, model: Path) -> None:
    done = export(tmp_path / "out", "--json")
    assert done.status == 0
    document = done.json
    assert {"path", "exporter", "precision", "max_logit_error"} <= set(document)
    assert (document["path"], document["source"]) == (str(tmp_path / "out"), str(model))
    assert (document["exporter"], document["precision"]) == ("table", "fp32")
    assert 0 <= document["max_logit_error"] < 1e-4
    stored = json.loads((tmp_path / "out" / "genkit_export.json").read_text())
    assert document == {**stored, "path": document["path"]}
    assert done.err.splitlines() == ["writing the table", "comparing the graph with the model"]


def test_as_text(export: Any, tmp_path: Path) -> None:
    lines = export(tmp_path / "out", "--precision", "int8").out.splitlines()
    assert lines[:3] == [
        f"path             {tmp_path / 'out'}",
        "exporter         table",
        "precision        int8",
    ]
    assert "the same in 111 of 111 places" in lines[3]


def test_the_folder_is_a_recipe_s_model(
    export: Any, genkit: Any, tmp_path: Path, tiny: Path
) -> None:
    from transformers import AutoConfig

    out = tmp_path / "out"
    assert export(out).status == 0
    assert AutoConfig.from_pretrained(out).vocab_size == zoo.VOCAB_SIZE
    backend = f"backend={{type: onnxruntime, model: {out}}}"
    assert genkit("recipes", "check", tiny, "--set", backend).status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "int2"], "'int8' or 'int4', found 'int2'"),
        (["--set", "spoil=refuse"], "has no table for this"),
        (["--set", "spoil=numbers"], "does not compute what it should"),
        (["--set", "spoils=1"], "did you mean 'spoil'?"),
        (["--set", "spoil"], "expected path.to.key=value"),
        (["--exporter", "tables"], "did you mean 'table'?"),
    ],
)
def test_whatever_is_wrong_is_one_message_and_leaves_nothing(
    export: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    done = export(tmp_path / "out", *arguments)
    assert (done.status, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupt_leaves_nothing(export: Any, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert export(tmp_path / "out", "--set", "spoil=interrupt").status == 130
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing(command: Any, model: Path, tmp_path: Path, number: int) -> None:
    before = sorted(tmp_path.iterdir())
    plugin = ("--plugin", table_exporter.__file__, "--exporter", "table", "--set", "spoil=wait")
    with subprocess.Popen(
        command("export", model, tmp_path / "out", *plugin),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as running:
        for _ in range(600):
            if running.poll() is not None or list(tmp_path.glob("out.part-*/begun")):
                break
            time.sleep(0.1)
        assert list(tmp_path.glob("out.part-*/begun")), running.stderr and running.stderr.read()
        running.send_signal(number)
        assert running.wait(30) == 128 + number
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_empty_is_refused(export: Any, model: Path) -> None:
    done = export(model)
    assert done.status == 1
    assert f"{model} is not empty; name a new folder" in done.err


def test_a_name_that_nobody_knows(export: Any, tmp_path: Path) -> None:
    done = export(tmp_path / "out", model="smolm2")
    assert done.status == 1
    assert "there is no model named 'smolm2'" in done.err


def test_who_chose_no_exporter_is_told_of_the_others(
    genkit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    monkeypatch.setattr("genkit.exporters.packages.usual_exporter", lambda precision: "table")
    arguments = ("--plugin", table_exporter.__file__, "--set", "spoil=refuse")
    done = genkit("export", model, tmp_path / "out", *arguments)
    assert done.status == 1
    assert "another exporter may do better: genkit parts exporters" in done.err


def test_exporters_are_parts(genkit: Any) -> None:
    listed = {part["name"]: part for part in genkit("parts", "exporters", "--json").json}
    assert set(listed) == {"genai", "optimum", "transformers"}
    options = {name: [o["name"] for o in part["options"]] for name, part in listed.items()}
    assert options == {
        "genai": ["precision", "provider"],
        "optimum": ["precision", "python"],
        "transformers": ["precision"],
    }
    assert all(option["description"] for part in listed.values() for option in part["options"])


def test_help_has_an_example(genkit: Any) -> None:
    done = genkit("export", "--help")
    assert done.status == 0
    assert "genkit export smollm2" in done.out
