from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from genkit import scaffold
from genkit.scaffold import KINDS, Package
from pages import blocks_of

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"

# Runs the tests of packages, checks them, and generates with their recipes, all in one process.
DRIVER = """
import sys
from pathlib import Path

import pytest
import torch
from genkit.cli import main

torch.set_num_threads(1)
models, packages = sys.argv[1], [Path(each) for each in sys.argv[2:]]
tests = [str(package / "tests") for package in packages]
done = [("tests", pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", *tests]))]
for package in packages:
    name = package.name.removeprefix("lm-genkit-").replace("-", "_")
    run = ["generate", "Hi", "-r", str(package / "recipe.yaml"), "--max-new-tokens", "3"]
    if "backend: {type: pytorch" in (package / "recipe.yaml").read_text():
        run += ["--plugin", models, "--set", "backend={type: tiny}"]
    done.append((f"check {name}", main(["plugins", "check", name, "--cases", "2"])))
    done.append((f"generate {name}", main(run)))
failed = [what for what, status in done if status]
print("failed:", *failed)
sys.exit(bool(failed))
"""


@pytest.fixture(autouse=True)
def _no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git knows nobody."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.chdir(tmp_path)


def every_file(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# --- what is written ---


def test_a_package_has_all_that_a_package_needs(genkit: Any, tmp_path: Path) -> None:
    done = genkit("plugins", "new", "my_idea", "--kind", "processor", "--author", "Ada Lovelace")
    assert (done.status, done.err) == (0, "")
    folder = tmp_path / "lm-genkit-my-idea"
    assert [name for name in every_file(folder) if "." in Path(name).name or "LIC" in name] == [
        ".github",
        ".github/workflows/test.yml",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "recipe.yaml",
        "src/genkit_my_idea/__init__.py",
        "src/genkit_my_idea/my_idea.py",
        "src/genkit_my_idea/py.typed",
        "tests/test_my_idea.py",
    ]
    assert "Ada Lovelace" in (folder / "LICENSE").read_text()
    assert (folder / "recipe.yaml").read_text() in (folder / "README.md").read_text()
    assert [p.name for p in tmp_path.iterdir() if "idea" in p.name] == ["lm-genkit-my-idea"]


def test_it_says_what_to_do_next_in_three_lines(genkit: Any, tmp_path: Path) -> None:
    done = genkit("plugins", "new", "calm", "--kind", "sampler", "--into", "some where")
    assert len(done.out.splitlines()) == 3
    assert "pip install --editable 'some where/lm-genkit-calm[test]'" in done.out
    assert "genkit plugins check calm" in done.out
    assert (tmp_path / "some where/lm-genkit-calm/src/genkit_calm/calm.py").is_file()


def test_the_licence_names_who_git_knows_or_nobody(genkit: Any, tmp_path: Path) -> None:
    genkit("plugins", "new", "one", "--kind", "sampler")
    assert " The authors of lm-genkit-one\n" in (tmp_path / "lm-genkit-one/LICENSE").read_text()
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "config", "user.name", "Grace Hopper"], check=True)
    genkit("plugins", "new", "two", "--kind", "sampler")
    assert " Grace Hopper\n" in (tmp_path / "lm-genkit-two/LICENSE").read_text()
    projects = [
        (tmp_path / f"lm-genkit-{name}/pyproject.toml").read_text() for name in ("one", "two")
    ]
    authors = [tomllib.loads(text)["project"].get("authors") for text in projects]
    assert authors == [None, [{"name": "Grace Hopper"}]]


def test_any_author_can_be_named() -> None:
    author = 'Ada "the first" O\'Neil \\ Ł'
    project = dict(Package("calm", "sampler", author).files())["pyproject.toml"]
    assert tomllib.loads(project)["project"]["authors"] == [{"name": author}]


def test_an_empty_folder_is_filled_and_any_other_refused(genkit: Any, tmp_path: Path) -> None:
    folder = tmp_path / "lm-genkit-calm"
    folder.mkdir()
    assert genkit("plugins", "new", "calm", "--kind", "sampler").status == 0
    (folder / "mine.txt").write_text("mine")
    before = every_file(folder)
    done = genkit("plugins", "new", "calm", "--kind", "context")
    assert done.status == 1 and "already; choose another name" in done.err
    assert every_file(folder) == before


@pytest.mark.parametrize("target", ["nowhere", "empty"])
def test_a_link_in_its_place_is_refused(genkit: Any, tmp_path: Path, target: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lm-genkit-calm").symlink_to(target)
    done = genkit("plugins", "new", "calm", "--kind", "sampler")
    assert done.status == 1
    assert "there is something at 'lm-genkit-calm' already" in done.err


def test_an_author_can_be_printed(genkit: Any) -> None:
    done = genkit("plugins", "new", "calm", "--kind", "sampler", "--author", "\udcff")
    assert done.status == 1 and "signs that cannot be printed" in done.err


def test_nothing_is_left_of_a_package_that_could_not_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("calm", "sampler")
    monkeypatch.setitem(scaffold.package._FILES, "zzz/{name}.py", "of_no_such_name.py")
    with pytest.raises(Exception, match="of_no_such_name"):
        package.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- names ---


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("My-Idea", "processor", "did you mean 'my_idea'?"),
        ("lm-genkit-calm", "processor", "the package of 'calm' is lm-genkit-calm; leave that out"),
        ("genkit_my_idea", "processor", "the package of 'my_idea' is lm-genkit-my-idea"),
        ("2fast", "processor", "begins with a letter"),
        ("a" * 25, "processor", "at most 24 small letters"),
        ("x_", "processor", "did you mean 'x'?"),
        ("../up", "processor", "did you mean 'up'?"),
        ("lambda", "processor", "a word of Python"),
        ("null", "processor", "no text in a recipe"),
        ("sampler", "sampler", "would be Sampler, which its files import already"),
        ("pipeline", "decoder", "would be Pipeline, which its files import already"),
        ("byte_tokenizer", "context", "would be ByteTokenizer, which its files import"),
        ("none", "processor", "a word of Python"),
        ("top_k", "processor", "there is a logits processor 'top_k' already, of plugin 'genkit'"),
        ("models", "sampler", "there is a plugin 'models'"),
        ("genkit", "observer", "there is a plugin 'genkit' (part of genkit) already"),
    ],
)
def test_names_that_will_not_do(
    genkit: Any, tmp_path: Path, name: str, kind: str, words: str
) -> None:
    before = every_file(tmp_path)
    done = genkit("plugins", "new", name, "--kind", kind)
    assert (done.status, done.out) == (1, "")
    assert words in done.err
    assert every_file(tmp_path) == before


def test_a_name_may_be_that_of_a_part_of_another_kind(genkit: Any) -> None:
    assert genkit("plugins", "new", "top_k", "--kind", "context").status == 0


def test_of_the_tutorials_plugin_one_line_differs_from_what_is_generated() -> None:
    page = (ROOT / "docs/write-a-plugin.md").read_text(encoding="utf-8")
    path = "src/genkit_min_z/__init__.py"
    [shown] = [b for b in blocks_of(page) if b.title == f"lm-genkit-min-z/{path}"]
    generated = dict(Package("min_z", "logits_processor").files())[path]
    differ = [
        line
        for line, other in zip(shown.code.splitlines(), generated.splitlines(), strict=True)
        if line != other
    ]
    assert [KINDS["logits_processor"] in generated, len(differ)] == [True, 1]


@pytest.mark.parametrize("arguments", [["calm"], ["calm", "--kind", "cook"], ["--kind", "sampler"]])
def test_wrong_usage(genkit: Any, arguments: list[str]) -> None:
    assert genkit("plugins", "new", *arguments).status == 2


# --- that it works ---


def test_importing_a_package_is_cheap(tmp_path: Path) -> None:
    packages = [Package(f"my_{kind}", kind) for kind in KINDS]
    paths = [str(package.write(tmp_path) / "src") for package in packages]
    program = f"import sys, {', '.join(package.module for package in packages)}\n"
    program += "assert 'torch' not in sys.modules"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize("name", ["q", "seven_letters_and_more_24"[:24]])
def test_style(tmp_path: Path, name: str) -> None:
    folders = [Package(name, kind).write(tmp_path / kind) for kind in KINDS]
    sources = [f"{folder}/src" for folder in (ROOT, *folders)]
    ruff = [sys.executable, "-m", "ruff"]
    common = ["--no-cache", "--config", str(PROJECT), "--config", f"src = {sources}"]
    # The project asks for no docstrings in tests.
    asked = [
        [*ruff, "check", *common, "--exclude", "tests", "."],
        [*ruff, "check", *common, "--extend-ignore", "D", "."],
        [*ruff, "format", *common, "--check", "."],
    ]
    for words in asked:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # mypy reads torch
def test_types(tmp_path: Path) -> None:
    folders = [Package(f"my_{kind}", kind).write(tmp_path) for kind in KINDS]
    words = [sys.executable, "-m", "mypy", "--config-file", str(PROJECT)]
    words += ["--cache-dir", str(ROOT / ".mypy_cache"), "--explicit-package-bases"]
    words += [str(path) for folder in folders for path in folder.rglob("*.py")]
    environment = os.environ | {"MYPYPATH": os.pathsep.join(f"{each}/src" for each in folders)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_packages_of_every_kind_pass_their_tests_and_the_check_and_run(
    tmp_path: Path, plugin: Path
) -> None:
    folders = [Package(f"my_{kind}", kind).write(tmp_path) for kind in KINDS]
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    installed = subprocess.run([*pip, *map(str, folders)], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(plugin), *map(str, folders)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * len(KINDS)} passed" in done.stdout
    assert "my_observer: 3 tokens" in done.stderr
