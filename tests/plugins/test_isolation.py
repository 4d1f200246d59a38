"""A plugin that fails costs its own parts, and nothing else."""

import pickle
import re
import sys
from types import SimpleNamespace

import pytest

from genkit.errors import PluginError, UnknownNameError
from genkit.plugins import hookimpl, lazy, manager
from genkit.plugins.discovery import installed_plugins
from genkit.plugins.manager import PluginManager

GOOD = """
    from genkit.plugins import hookimpl, lazy

    @hookimpl
    def genkit_register_samplers():
        return [lazy("{name}", "genkit_nowhere:Sampler", "A sampler.")]
"""

BREAKING = {
    "missing": "import genkit_is_not_there",
    "syntax": "def (:",
    "exits": "raise SystemExit(3)",
    "os": "raise OSError(28, 'No space left on device')",
    "base": "class Panic(BaseException): pass\nraise Panic('at the disco')",
}

CAUSES = {
    "missing": "ModuleNotFoundError: No module named 'genkit_is_not_there'",
    "syntax": "SyntaxError",
    "exits": "SystemExit: 3",
    "os": "No space left on device",
    "base": "Panic: at the disco",
}


@pytest.mark.parametrize("how", BREAKING)
def test_one_that_cannot_be_imported_is_left_out_with_one_line(install, find, caplog, how):
    install("good", GOOD.format(name="x"))
    install("broken", BREAKING[how])
    before = PluginManager(entry_points=False).registry.names("sampler")
    plugins = PluginManager()
    assert {*before, "x"} <= set(plugins.registry.names("sampler"))
    assert find(plugins, "broken").state == "broken"
    [record] = caplog.records
    message = record.getMessage()
    assert "plugin 'broken' (lm-genkit-broken 1.0)" in message
    assert CAUSES[how] in message
    assert "\n" not in message


def test_the_warning_comes_once(install, caplog):
    install("broken", "import genkit_is_not_there")
    PluginManager()
    PluginManager()
    assert len(caplog.records) == 1


def test_strict_raises(install):
    install("broken", "import genkit_is_not_there")
    with pytest.raises(PluginError, match=r"plugin 'broken' \(lm-genkit-broken 1.0\)") as caught:
        PluginManager(strict=True)
    assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize("names", ["broken", "lm-genkit-broken", "other, LM_Genkit.Broken"])
def test_a_disabled_one_is_not_imported_and_not_warned_about(
    install, find, caplog, monkeypatch, names
):
    install("broken", "import genkit_is_not_there")
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", names)
    plugins = PluginManager()
    assert find(plugins, "broken").state == "disabled"
    assert "genkit_test_broken" not in sys.modules
    assert not caplog.records


def test_asking_for_a_part_of_a_broken_plugin_tells_the_cause(install):
    install("broken", "import genkit_is_not_there")
    with pytest.raises(UnknownNameError, match="no sampler named 'mine'") as caught:
        PluginManager().registry.entry("sampler", "mine")
    assert "lm-genkit-broken 1.0" in str(caught.value)
    assert "No module named 'genkit_is_not_there'" in str(caught.value)


def test_asking_for_a_part_of_a_disabled_plugin_tells_so(install, monkeypatch):
    install("off", GOOD.format(name="mine"))
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", "off")
    with pytest.raises(UnknownNameError, match="disabled by GENKIT_DISABLE_PLUGINS"):
        PluginManager().registry.entry("sampler", "mine")


def test_installed_plugins_are_listed_without_being_imported(install, find, monkeypatch):
    install("broken", "raise RuntimeError")
    install("off", "raise RuntimeError")
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", "off")
    listed = installed_plugins()
    assert find(listed, "broken").state == "found"
    assert find(listed, "broken").origin == "lm-genkit-broken 1.0"
    assert find(listed, "off").state == "disabled"
    assert not {"genkit_test_broken", "genkit_test_off"} & set(sys.modules)


def test_what_a_listing_needs_is_known_of_each_plugin(install, find):
    install("good", GOOD.format(name="x"), version="2.5")
    good = find(PluginManager(), "good")
    assert (good.name, good.distribution, good.version) == ("good", "lm-genkit-good", "2.5")
    assert (good.source, good.location) == ("distribution", "genkit_test_good")
    assert good.state == "loaded"
    assert good.parts == (("sampler", "x"),)
    assert good.seconds > 0


class HalfWay:
    """Registers a sampler, and fails the first time it is asked for models."""

    failing = True

    @hookimpl
    def genkit_register_samplers(self):
        return [lazy("x", "genkit_nowhere:Sampler")]

    @hookimpl
    def genkit_register_models(self):
        if self.failing:
            raise RuntimeError("half-way")
        return {}


def test_one_that_fails_half_way_leaves_nothing_and_loads_after_repair(install, find):
    path = install(
        "half",
        GOOD.format(name="x")
        + """
    @hookimpl
    def genkit_register_models():
        raise RuntimeError("half-way")
    """,
    )
    plugins = PluginManager()
    assert "x" not in plugins.registry.names("sampler")
    assert find(plugins, "half").parts == ()
    assert find(plugins, "half").cause == "RuntimeError: half-way"

    path.write_text(path.read_text().replace('raise RuntimeError("half-way")', "return {}"))
    del sys.modules["genkit_test_half"]
    assert PluginManager().registry.names("sampler").count("x") == 1


def test_a_given_plugin_that_failed_can_be_given_again():
    plugin = HalfWay()
    with pytest.raises(PluginError, match="half-way"):
        PluginManager([plugin], entry_points=False)
    plugin.failing = False
    registry = PluginManager([plugin], entry_points=False).registry
    assert registry.names("sampler").count("x") == 1


# Names


def test_two_given_plugins_with_one_part_name_are_an_error_naming_both():
    def plugin(name):
        function = hookimpl(lambda: [lazy("same", "genkit_nowhere:Sampler")])
        return SimpleNamespace(name=name, genkit_register_samplers=function)

    with pytest.raises(PluginError, match="sampler 'same'") as caught:
        PluginManager([plugin("first"), plugin("second")], entry_points=False)
    assert "plugin 'first'" in str(caught.value)
    assert "plugin 'second'" in str(caught.value)


def test_two_installed_plugins_with_one_part_name_harm_only_who_asks_for_it(install, caplog):
    other = """
    @hookimpl
    def genkit_register_contexts():
        return [lazy("{0}_own", "genkit_nowhere:Context")]
    """
    for name in ("first", "second"):
        install(name, GOOD.format(name="same") + other.format(name))
    registry = PluginManager().registry
    assert registry.entry("sampler", "greedy")
    assert {"first_own", "second_own"} <= set(registry.names("context"))
    [record] = caplog.records
    for name in ("first", "second"):
        assert f"plugin '{name}'" in record.getMessage()
    with pytest.raises(PluginError, match=r"claimed by plugin 'first'.*and by plugin 'second'"):
        registry.entry("sampler", "same")


def test_every_name_that_two_plugins_claim_is_an_error(install):
    both = """
        from genkit.plugins import hookimpl, lazy

        @hookimpl
        def genkit_register_samplers():
            return [lazy("one", "genkit_nowhere:One"), lazy("two", "genkit_nowhere:Two")]
    """
    install("first", both)
    install("second", both)
    registry = PluginManager().registry
    for name in ("one", "two"):
        with pytest.raises(PluginError, match=f"sampler '{name}' is claimed"):
            registry.entry("sampler", name)


def test_disabling_one_of_two_resolves_the_clash(install, monkeypatch):
    install("first", GOOD.format(name="same"))
    install("second", GOOD.format(name="same"))
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", "first")
    assert PluginManager().registry.entry("sampler", "same").plugin.name == "second"


def test_what_comes_with_genkit_keeps_its_name(install, caplog):
    install("grabs", GOOD.format(name="greedy"))
    registry = PluginManager().registry
    assert registry.entry("sampler", "greedy").plugin.name == "genkit"
    assert "part of genkit" in caplog.text
    assert "lm-genkit-grabs" in caplog.text


def test_two_plugins_with_one_name_are_an_error_naming_both(install, find, caplog):
    install("same", GOOD.format(name="x"), distribution="lm-genkit-a")
    with pytest.raises(PluginError, match=r"\(lm-genkit-a 1.0\) and .*an object of class"):
        PluginManager([SimpleNamespace(name="same", genkit_step=hookimpl(lambda step: None))])


def test_the_advice_about_two_of_one_name_silences_only_the_one_that_fails(
    install, caplog, monkeypatch
):
    install("same", GOOD.format(name="x"), distribution="lm-genkit-a")
    install("same", GOOD.format(name="x"), distribution="lm-genkit-b")
    PluginManager()
    [record] = caplog.records
    advised = re.search(r"GENKIT_DISABLE_PLUGINS=([\w-]+) ", record.getMessage())[1]
    caplog.clear()
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", advised)
    manager._warn_once.cache_clear()
    plugins = PluginManager()
    states = {plugin.distribution: plugin.state for plugin in plugins if plugin.name == "same"}
    assert sorted(states.values()) == ["disabled", "loaded"]
    assert states[advised] == "disabled"
    assert plugins.registry.entry("sampler", "x")
    assert not caplog.records


# Files


def test_a_single_file_is_a_plugin(tmp_path):
    path = tmp_path / "calm.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from typing import Literal\n"
        "from genkit.components.base import LogitsProcessor\n"
        "from genkit.plugins import hookimpl\n"
        "class Calm(LogitsProcessor):\n"
        "    type: Literal['calm'] = 'calm'\n"
        "    factor: float = 0.5\n"
        "@hookimpl\n"
        "def genkit_register_logits_processors():\n"
        "    return [Calm]\n"
    )
    plugins = PluginManager([path], entry_points=False)
    assert plugins.registry.part_class("logits_processor", "calm")().factor == 0.5

    path.write_text(path.read_text().replace("0.5", "0.7"))  # as long as before, and as old
    plugins = PluginManager([str(path)], entry_points=False)
    assert plugins.registry.part_class("logits_processor", "calm")().factor == 0.7
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_file_that_two_kits_load_gives_one_class_until_it_is_changed(tmp_path):
    """A class whose module has been replaced could not be pickled."""
    path = tmp_path / "one.py"
    source = """
from typing import Literal
from genkit.components.base import Sampler
from genkit.plugins import hookimpl

class One(Sampler):
    \"\"\"Draws nothing.\"\"\"

    type: Literal["one"] = "one"

@hookimpl
def genkit_register_samplers():
    return [One]
"""
    path.write_text(source)
    first, second = (
        PluginManager([path], entry_points=False).registry.part_class("sampler", "one")
        for _ in range(2)
    )
    assert first is second
    assert pickle.loads(pickle.dumps(first())) == second()
    path.write_text(source + "\n")
    registry = PluginManager([path], entry_points=False).registry
    assert registry.part_class("sampler", "one") is not first


def test_a_file_that_fails_is_an_error_and_leaves_no_module(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("raise RuntimeError('no')")
    before = set(sys.modules)
    with pytest.raises(PluginError, match=r"plugin 'bad' .*bad\.py.*RuntimeError: no"):
        PluginManager([path], entry_points=False)
    assert set(sys.modules) == before


def test_a_file_that_is_missing_is_an_error():
    with pytest.raises(PluginError, match=r"there is no plugin file 'nowhere\.py'"):
        PluginManager(["nowhere.py"], entry_points=False)


# Commands


class App:
    def __init__(self):
        self.registered_commands = []


class Commands:
    name = "commands"
    failing = False

    @hookimpl
    def genkit_register_samplers(self):
        return [lazy("x", "genkit_nowhere:Sampler")]

    @hookimpl
    def genkit_register_commands(self, app):
        app.registered_commands.append("mine")
        if self.failing:
            raise RuntimeError("no")


def test_a_plugin_adds_commands():
    [(plugin, app)] = PluginManager([Commands()], entry_points=False).commands(App)
    assert (plugin.name, app.registered_commands) == ("commands", ["mine"])


def test_a_plugin_that_fails_at_its_commands_adds_none_and_loses_its_parts(find, caplog):
    plugin = Commands()
    plugin.failing = True
    plugins = PluginManager([plugin], entry_points=False)
    assert "x" in plugins.registry.names("sampler")
    assert list(plugins.commands(App)) == []
    assert find(plugins, "commands").state == "broken"
    assert find(plugins, "commands").parts == ()
    assert plugins.registry.names("sampler") == ["adaptive_p", "categorical", "greedy", "mirostat"]
    assert "RuntimeError: no" in caplog.text


# Versions of the contracts.


@pytest.mark.parametrize("stated", [">=1.0", ">=1,<2", "==1.*", "~=1.0", ""])
def test_one_that_works_with_this_version_is_loaded(stated):
    plugin = SimpleNamespace(name="x", genkit_api=stated, genkit_step=hookimpl(lambda run: None))
    plugin.genkit_step.__name__ = "genkit_step"
    PluginManager([plugin], entry_points=False)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (">=2", "works with version >=2 of genkit's plugin API, and this genkit has 1.0"),
        ("<1", "works with version <1 of genkit's plugin API"),
        ("new", "its genkit_api is 'new'; versions are written as a text like"),
        (2, "its genkit_api is 2; versions are written"),
        ([], "its genkit_api is []; versions are written"),
    ],
)
def test_one_for_another_version_is_left_out_alone(install, find, caplog, stated, message):
    """Before its hooks are looked at, which may be those of the other version."""
    install("good", GOOD.format(name="x"))
    misspelt = GOOD.format(name="y").replace("samplers", "new")
    install("other", f"{misspelt}\n    genkit_api = {stated!r}")
    plugins = PluginManager()
    assert "x" in plugins.registry.names("sampler")
    assert find(plugins, "other").state == "broken"
    [record] = caplog.records
    assert "plugin 'other' (lm-genkit-other 1.0) is left out" in record.getMessage()
    assert message in record.getMessage()


def test_a_file_that_fails_as_it_is_for_another_version_says_so(tmp_path):
    file = tmp_path / "other.py"
    file.write_text("genkit_api = '>=2'\nfrom genkit.plugins import what_2_has\n")
    with pytest.raises(PluginError, match="works with version >=2 of genkit's plugin API"):
        PluginManager([file], entry_points=False)
    assert not any("other" in name for name in sys.modules if name.startswith("genkit_plugin_"))


def test_one_that_is_slow_to_import_is_loaded_and_named(install, find, caplog, monkeypatch):
    monkeypatch.setattr(manager, "SLOW", 0.05)
    install("good", GOOD.format(name="x"))
    install("slow", GOOD.format(name="y") + "\n    import time; time.sleep(0.1)")
    plugins = PluginManager()
    assert {"x", "y"} <= set(plugins.registry.names("sampler"))
    assert find(plugins, "slow").seconds >= 0.1 > find(plugins, "good").seconds
    messages = [record.getMessage() for record in caplog.records]
    assert [each for each in messages if "plugin 'slow' (lm-genkit-slow 1.0) took" in each]
