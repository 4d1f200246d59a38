"""The public surface, and what importing it costs."""

import json
import subprocess
import sys

import pytest

import genkit

HEAVY = ["torch", "transformers", "numpy", "pluggy", "pydantic", "yaml", "typer", "rich"]


def test_public_names():
    assert sorted(genkit.__all__) == [
        "Conversation",
        "GenkitError",
        "Kit",
        "Pipeline",
        "Result",
        "Step",
        "Stop",
        "__version__",
        "backends",
        "caches",
        "contexts",
        "decoders",
        "errors",
        "load_recipe",
        "processors",
        "samplers",
        "stopping",
    ]
    assert dir(genkit) == sorted(genkit.__all__)


@pytest.mark.parametrize("name", genkit.__all__)
def test_every_public_name_is_there(name):
    assert getattr(genkit, name) is not None


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        genkit.Engine  # noqa: B018


def test_the_errors_that_are_public_are_the_tree_of_the_docstring():
    from genkit import errors

    tree = [name for name in errors.__all__ if name.endswith("Error")]
    assert all(name in errors.__doc__ for name in tree)
    assert all(issubclass(getattr(errors, name), errors.GenkitError) for name in tree)


def imported(statement, names):
    """Which of these modules a fresh interpreter has after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps([*sys.modules]))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return sorted(set(names) & set(json.loads(shown.stdout)))


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import genkit", []),
        ("from genkit import errors", []),
        ("from genkit.plugins import hookimpl, lazy", ["pluggy"]),
        ("from genkit import Kit; Kit(entry_points=False).parts()", ["pluggy", "yaml"]),
        ("import genkit.plugins.discovery as d; d.installed_plugins()", ["pluggy"]),
    ],
)
def test_importing_is_cheap(statement, allowed):
    assert imported(statement, HEAVY) == allowed


def test_a_plugin_is_not_imported_before_a_kit_is_built():
    assert imported("import genkit.plugins", ["genkit.plugins.manager", "genkit.kit"]) == []
