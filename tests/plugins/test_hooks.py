"""What a plugin may implement, and what it may return."""

import inspect
import sys
from typing import ClassVar, Literal

import pytest

from genkit.components.base import Component, LogitsProcessor, Sampler
from genkit.errors import MissingPackageError, ModelLoadError, PluginError
from genkit.plugins import builtin, hookimpl, hookspecs, lazy
from genkit.plugins.hookspecs import OBSERVATION_HOOKS, PART_HOOKS
from genkit.plugins.manager import PluginManager


class Loud(LogitsProcessor):
    """Doubles every logit."""

    type: Literal["loud"] = "loud"

    def __call__(self, state, logits):
        return logits * 2


class Nameless(Sampler):
    """Has no name for recipes."""


class Unnamed(Sampler):
    """Has an empty name."""

    type: str = ""


class ToText(Component):
    """Writes a model down as text."""

    kind: ClassVar[str] = "exporter"
    type: Literal["to_text"] = "to_text"


def plugin(**returned):
    """A plugin whose hooks return these values."""

    def implementation(value):
        return hookimpl(lambda: value)

    namespace = {hook: staticmethod(implementation(value)) for hook, value in returned.items()}
    return type("Given", (), namespace)()


def load(**returned):
    return PluginManager([plugin(**returned)], entry_points=False)


def test_every_hook_is_declared_with_a_docstring():
    hooks = {n: f for n, f in vars(hookspecs).items() if n.startswith("genkit_")}
    others = {"genkit_register_models", "genkit_register_recipes", "genkit_register_commands"}
    assert set(hooks) == {*PART_HOOKS.values(), *OBSERVATION_HOOKS, *others}
    for hook in hooks.values():
        assert "Called" in inspect.getdoc(hook)
        assert "return" in hook.__annotations__


def test_built_in_parts_come_through_the_same_hooks():
    registry = PluginManager(entry_points=False).registry
    implemented = [hook for hook in PART_HOOKS.values() if hasattr(builtin, hook)]
    announced = [item.name for hook in implemented for item in getattr(builtin, hook)()]
    assert sorted(part.name for part in registry.parts()) == sorted(announced)
    assert registry.names("sampler") == ["adaptive_p", "categorical", "greedy", "mirostat"]
    assert {part.plugin.name for part in registry.parts()} == {"genkit"}


def test_built_in_parts_are_what_they_are_announced_as():
    for part in PluginManager(entry_points=False).registry.parts():
        assert part.part_class.type_name() == part.name
        assert part.part_class.kind == part.kind
        assert part.summary


def test_a_class_and_a_lazy_part_are_registered_alike():
    plugins = load(genkit_register_logits_processors=[Loud])
    assert plugins.registry.part_class("logits_processor", "loud") is Loud
    [entry] = [part for part in plugins.registry.parts() if part.name == "loud"]
    assert entry.summary == "Doubles every logit."
    assert entry.plugin.name == "Given"


def test_exporters_are_registered_and_listed():
    registry = load(genkit_register_exporters=[ToText]).registry
    assert registry.names("exporter") == ["genai", "optimum", "to_text", "transformers"]


def test_models_and_recipes_are_registered(tmp_path):
    recipe = tmp_path / "calm-chat.yaml"
    recipe.write_text("version: 1\n")
    plugins = load(
        genkit_register_models={"calm": tmp_path / "calm.gguf"}, genkit_register_recipes=[recipe]
    )
    assert plugins.registry.models() == {"calm": tmp_path / "calm.gguf"}
    assert plugins.registry.recipes() == {"calm-chat": recipe}


@pytest.mark.parametrize(
    ("find", "cause"),
    [
        (lambda: {}["x"], "KeyError: 'x'"),
        (lambda: None, "expected a path or hub id, found None"),
        (lambda: sys.exit(3), "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("with_options", [False, True])
def test_a_search_for_a_model_that_fails_is_the_plugins_error(find, cause, with_options):
    source = {"model": find, "device": "cpu"} if with_options else find
    found = load(genkit_register_models={"x": source}).registry.models()["x"]
    search = found["model"] if with_options else found
    with pytest.raises(
        PluginError, match=r"plugin 'Given' .*: its model 'x' cannot be found: "
    ) as e:
        search()
    assert cause in str(e.value)


def test_a_search_for_a_model_may_say_what_to_do():
    def find():
        raise ModelLoadError("install the weights")

    models = load(genkit_register_models={"x": find, "y": lambda: "a/b"}).registry.models()
    assert models["y"]() == "a/b"
    with pytest.raises(ModelLoadError, match="install the weights"):
        models["x"]()


@pytest.mark.parametrize(
    ("hook", "returned", "message"),
    [
        ("genkit_register_samplers", None, "expected a list, found None"),
        ("genkit_register_samplers", "greedy", "expected a list, found 'greedy'"),
        ("genkit_register_samplers", ["greedy"], "expected a class or lazy"),
        ("genkit_register_samplers", [int], "int does not derive from genkit's Component"),
        ("genkit_register_samplers", [Loud], "Loud is a logits processor, not a sampler"),
        ("genkit_register_samplers", [Nameless], "Nameless has no name"),
        ("genkit_register_samplers", [Unnamed], "Unnamed has no name"),
        ("genkit_register_logits_processors", [Loud, Loud], "the logits processor 'loud' twice"),
        ("genkit_register_models", ["x"], "expected a mapping"),
        ("genkit_register_models", {"x": 3}, "expected where 'x' is, found 3"),
        (
            "genkit_register_models",
            {"x": {"device": "cpu"}},
            "expected where 'x' is, found .*model",
        ),
        ("genkit_register_models", {"x": {"model": 3}}, "expected where 'x' is, found .*model"),
        ("genkit_register_models", {"": "x"}, "expected a name"),
        ("genkit_register_recipes", [3], "expected a path, found 3"),
        ("genkit_register_recipes", ["nowhere.yaml"], "there is no file 'nowhere.yaml'"),
    ],
)
def test_a_wrong_thing_returned_is_the_plugins_error(hook, returned, message):
    with pytest.raises(PluginError, match=message) as caught:
        load(**{hook: returned})
    assert "plugin 'Given'" in str(caught.value)


def test_a_misspelt_hook_is_an_error_that_names_the_nearest():
    with pytest.raises(PluginError, match="did you mean 'genkit_register_samplers'"):
        load(genkit_regster_samplers=[])


def test_a_hook_with_a_misspelt_argument_is_an_error():
    class Given:
        @hookimpl
        def genkit_step(self, run, stepp):
            pass

    with pytest.raises(PluginError, match="stepp"):
        PluginManager([Given()], entry_points=False)


def test_an_unmarked_hook_is_an_error():
    class Given:
        def genkit_register_samplers(self):
            return []

    with pytest.raises(PluginError, match=r"genkit_register_samplers .* not marked"):
        PluginManager([Given()], entry_points=False)


def test_a_plugin_without_hooks_is_an_error():
    with pytest.raises(PluginError, match="no function marked with @hookimpl"):
        PluginManager([object()], entry_points=False)


@pytest.mark.parametrize("target", ["module", "module:", ":Class"])
def test_lazy_wants_a_module_and_a_class(target):
    with pytest.raises(PluginError, match=r"package\.module:Class"):
        lazy("x", target)


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("genkit_nowhere.parts:Loud", "No module named 'genkit_nowhere'"),
        ("genkit.errors:Loud", "has no attribute 'Loud'"),
        ("genkit.errors:GenkitError", "does not derive from genkit's Component"),
        ("genkit.components.samplers:Greedy", "Greedy is a sampler, not a logits processor"),
        (
            "genkit.components.processors.top_k:TopK",
            "the `type` of TopK is 'top_k'; it has to be the name that is registered",
        ),
    ],
)
def test_a_lazy_part_that_is_not_there_fails_when_it_is_used(target, cause):
    registry = load(genkit_register_logits_processors=[lazy("loud", target)]).registry
    assert "loud" in registry.names("logits_processor")
    with pytest.raises(PluginError, match=r"plugin 'Given'.*logits processor 'loud'") as caught:
        registry.part_class("logits_processor", "loud")
    assert cause in str(caught.value)


class Watcher:
    name = "watcher"

    def __init__(self):
        self.seen = []

    @hookimpl
    def genkit_step(self, step):
        self.seen.append(step)

    @hookimpl
    def genkit_run_failed(self, run, error):
        self.seen.append((run, error))


def test_an_observer_has_only_what_its_plugin_implements():
    watcher = Watcher()
    [observer] = PluginManager([watcher], entry_points=False).observers()
    observer.genkit_step("run", "step")
    observer.genkit_run_failed("run", "error")
    assert watcher.seen == ["step", ("run", "error")]
    assert observer.name == "watcher"
    assert not hasattr(observer, "genkit_run_started")


def test_nobody_watches_by_default():
    assert PluginManager(entry_points=False).observers() == []


def test_a_lazy_part_says_which_extra_brings_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "genkit_lacking.py").write_text("import genkit_is_not_there.inner\n")
    part = lazy("x", "genkit_lacking:X", extra="lm-genkit[onnx]")
    registry = load(genkit_register_samplers=[part]).registry
    with pytest.raises(MissingPackageError) as caught:
        registry.part_class("sampler", "x")
    assert "the part 'x' needs the package 'genkit_is_not_there'" in str(caught.value)
    assert "pip install 'lm-genkit[onnx]'" in str(caught.value)


def test_a_lazy_part_that_is_lost_itself_is_no_missing_package():
    part = lazy("x", "genkit_nowhere:X", extra="lm-genkit[onnx]")
    with pytest.raises(PluginError, match="cannot be used"):
        load(genkit_register_samplers=[part]).registry.part_class("sampler", "x")
