from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genkit.plugins import manager

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a plugin of one module, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    manager._warn_once.cache_clear()
    installed: list[str] = []

    def install(name: str, source: str) -> None:
        module = f"genkit_clitest_{name}"
        info = tmp_path / f"lm_genkit_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: lm-genkit-{name}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[genkit]\n{name} = {module}\n")
        (tmp_path / f"{module}.py").write_text(source)
        installed.append(module)

    yield install
    for module in installed:
        sys.modules.pop(module, None)


GOOD = """
from genkit.plugins import hookimpl, lazy

@hookimpl
def genkit_register_samplers():
    return [lazy("good", "nowhere.at.all:Good", "Is good.")]
"""

BROKEN = {
    "ImportError": "import nothing_of_this_name\n",
    "SyntaxError": "def (:\n",
    "SystemExit": "import sys; sys.exit(3)\n",
    "OSError": "open('/nothing/of/this/name')\n",
}


@pytest.mark.parametrize("cause", BROKEN)
def test_a_broken_plugin_costs_one_line_and_nothing_else(
    genkit: Any, install: Install, cause: str, scripted: Path
) -> None:
    install("good", GOOD)
    install("broken", BROKEN[cause])
    done = genkit("--help")
    assert done.status == 0
    [line] = done.err.splitlines()[:1]
    assert line.startswith("warning: plugin 'broken' (lm-genkit-broken 1.0) is left out: ")
    assert genkit("generate", "-r", scripted, "hi").out == "Hello.\n"
    assert "good" in genkit("parts", "samplers").out
    listed = {p["name"]: p for p in genkit("plugins", "list", "--json").json}
    assert listed["broken"]["state"] == "broken"
    assert listed["broken"]["cause"]
    assert (listed["good"]["state"], listed["good"]["version"]) == ("loaded", "1.0")
    text = genkit("plugins", "list")
    assert text.status == 0
    assert listed["broken"]["cause"] in text.out


def test_a_disabled_plugin_is_silent(
    genkit: Any, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("broken", BROKEN["ImportError"])
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", "broken")
    done = genkit("plugins", "list", "--json")
    assert (done.status, done.err) == (0, "")
    assert {p["name"]: p["state"] for p in done.json}["broken"] == "disabled"


def test_list_names_everything_about_a_plugin(genkit: Any, plugin: Path) -> None:
    done = genkit("plugins", "list", "--json")
    [found] = [p for p in done.json if p["name"] == "models"]
    assert found["source"] == "file"
    assert found["location"] == str(plugin)
    assert found["load_seconds"] > 0
    assert {"kind": "backend", "name": "tiny"} in found["parts"]
    text = genkit("plugins", "list").out
    assert str(plugin) in text
    assert "36 logits processors" in text


def test_asking_for_a_part_of_a_broken_plugin_shows_the_cause(
    genkit: Any, install: Install, tmp_path: Path
) -> None:
    install("broken", BROKEN["ImportError"])
    file = tmp_path / "recipe.yaml"
    file.write_text("version: 1\nbackend: {type: tiny}\nsampler: {type: special}\n")
    done = genkit("generate", "-r", file, "hi")
    assert done.status == 1
    assert "nothing_of_this_name" in done.err.splitlines()[-1]


def test_real_process(process: Any) -> None:
    done = process("plugins", "list", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json[0]["source"] == "built-in"
