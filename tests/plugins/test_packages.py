"""The packages beside genkit ask for what they import: with `test` installed, their tests run."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import files, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
OF_MODULE = packages_distributions()


def project(folder: Path) -> Any:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def imported(folder: Path) -> Iterator[str]:
    """Every module that is imported in a folder, also inside functions."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module)


def bringing(module: str) -> set[str]:
    """What brings a module: several may share a package, as those of OpenTelemetry do."""
    begin = module.replace(".", "/")
    return {
        canonicalize_name(name)
        for name in OF_MODULE[module.partition(".")[0]]
        if any(str(path).startswith((f"{begin}/", f"{begin}.")) for path in files(name) or ())
    }


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_what_is_imported_is_asked_for(folder: Path) -> None:
    asked = project(folder)
    brought = names(asked["dependencies"] + project(ROOT)["dependencies"])
    for_tests = brought | names(asked["optional-dependencies"]["test"])
    own = {"genkit", *(path.name for path in (folder / "src").iterdir())}
    for part, found in (("src", brought), ("tests", for_tests)):
        for module in imported(folder / part):
            if module.partition(".")[0] not in own | sys.stdlib_module_names:
                assert bringing(module) & found, (part, module)


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_what_tests_ask_for_is_what_those_of_genkit_ask_for(folder: Path) -> None:
    asked, ours = (project(each)["optional-dependencies"]["test"] for each in (folder, ROOT))
    assert set(asked) <= set(ours)
