import sys
import textwrap

import pytest

from genkit.plugins import manager


@pytest.fixture(autouse=True)
def quiet_world(monkeypatch):
    """No plugin is disabled, and no warning has been given yet."""
    monkeypatch.delenv("GENKIT_DISABLE_PLUGINS", raising=False)
    manager._warn_once.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a plugin that is one module, as pip would; returns the path of the module."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def install(name, source, *, distribution=None, version="1.0"):
        distribution = distribution or f"lm-genkit-{name}"
        module = f"genkit_test_{name}"
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[genkit]\n{name} = {module}\n")
        path = tmp_path / f"{module}.py"
        path.write_text(textwrap.dedent(source))
        return path

    yield install
    for name in set(sys.modules) - before:
        if name.startswith("genkit_test_"):
            del sys.modules[name]


@pytest.fixture
def find():
    """The plugin of a manager that has this name."""
    return lambda plugins, name: next(plugin for plugin in plugins if plugin.name == name)
