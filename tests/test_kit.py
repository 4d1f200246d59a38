"""A kit: from plugins and a recipe to a pipeline."""

from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from genkit import Kit, load_recipe
from genkit.backends.base import Backend
from genkit.errors import ModelLoadError, PluginError, RecipeError, UnknownNameError
from genkit.plugins import hookimpl


class Fake(Backend):
    """A backend with a model of no weights."""

    type: Literal["fake"] = "fake"
    model: str

    def load(self, *, models=None, progress=None):
        if self.model == "cut-short":
            raise ModelLoadError("the file is cut short")
        if self.model not in models:
            raise UnknownNameError("model", self.model, models)
        if progress is not None:
            progress("loading")
        return SimpleNamespace(
            where=models[self.model],
            vocab_size=4,
            eos_token_ids=frozenset({3}),
            context_length=8,
            device=torch.device("cpu"),
            supports=frozenset(),
            tokenizer=None,
        )


class Plugin:
    name = "fakes"

    @hookimpl
    def genkit_register_backends(self):
        return [Fake]

    @hookimpl
    def genkit_register_models(self):
        return {"tiny": "/models/tiny"}

    @hookimpl
    def genkit_step(self, step):
        pass


@pytest.fixture
def kit():
    return Kit([Plugin()], entry_points=False)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "version: 1\n"
        "backend: {type: fake, model: tiny}\n"
        "processors: [{type: top_k, k: 2}]\n"
        "sampler: {type: categorical}\n"
        "stop_criteria: [{type: max_new_tokens, limit: 2}]\n"
        "seed: 7\n"
    )
    return path


def test_a_recipe_becomes_a_pipeline(kit, recipe):
    told = []
    pipeline = kit.build(recipe, progress=told.append)
    assert pipeline.model.where == "/models/tiny"
    assert [processor.type for processor in pipeline.parts.processors] == ["top_k"]
    assert pipeline.parts.sampler.type == "categorical"
    assert [criterion.type for criterion in pipeline.parts.stop_criteria] == ["max_new_tokens"]
    assert pipeline.seed == 7
    assert told == ["loading"]


def test_plugins_that_watch_are_the_pipelines_observers(kit, recipe):
    [observer] = kit.build(recipe).observers
    assert observer.name == "fakes"
    assert hasattr(observer, "genkit_step")


def test_overrides_reach_the_pipeline(kit, recipe):
    assert kit.build(recipe, ["processors.0.k=3"]).parts.processors[0].k == 3


def test_a_recipe_builds_itself(kit, recipe):
    assert kit.recipe(recipe).build().seed == 7
    assert load_recipe(recipe, ["seed=8"], kit=kit).build().seed == 8


def test_load_recipe_uses_what_is_installed(recipe, monkeypatch):
    monkeypatch.setattr("genkit.plugins.manager.installed_plugins", list)
    with pytest.raises(RecipeError, match="no backend named 'fake'"):
        load_recipe(recipe)


def test_a_checked_recipe_takes_no_overrides(kit, recipe):
    with pytest.raises(TypeError, match=r"Kit\.recipe"):
        kit.build(kit.recipe(recipe), ["seed=3"])


def test_a_model_that_cannot_be_loaded_is_named_with_file_and_key(kit, recipe):
    with pytest.raises(ModelLoadError, match="the file is cut short") as caught:
        kit.build(recipe, ["backend.model=cut-short"])
    assert caught.value.__notes__ == [f"{recipe}:2:1: backend"]


def test_an_unknown_model_tells_which_plugins_are_missing(monkeypatch, recipe, kit):
    kit.registry.absent.append(SimpleNamespace(cause="ImportError: no", __str__=lambda self: "x"))
    with pytest.raises(UnknownNameError, match="no model named 'tiny-2', did you mean 'tiny'") as e:
        kit.load(Fake(model="tiny-2"))
    assert "ImportError: no" in e.value.__notes__[0]


def test_a_backend_is_loaded_with_the_registered_names(kit):
    assert kit.load(Fake(model="tiny")).where == "/models/tiny"


def test_parts_are_listed_by_kind(kit):
    assert [part.name for part in kit.parts("sampler")] == [
        "adaptive_p",
        "categorical",
        "greedy",
        "mirostat",
    ]
    assert {part.kind for part in kit.parts()} >= {"backend", "sampler", "stop_criterion"}
    with pytest.raises(UnknownNameError, match="did you mean 'sampler'"):
        kit.parts("samplers")


def test_kits_are_independent(kit):
    assert "fake" in kit.registry.names("backend")
    assert "fake" not in Kit(entry_points=False).registry.names("backend")


def test_a_kit_from_a_single_file(tmp_path):
    path = tmp_path / "calm.py"
    path.write_text(
        "from genkit.plugins import hookimpl, lazy\n"
        "@hookimpl\n"
        "def genkit_register_samplers():\n"
        "    return [lazy('calm', 'genkit_calm:Calm')]\n"
    )
    kit = Kit.from_file(path, entry_points=False)
    assert "calm" in kit.registry.names("sampler")
    with pytest.raises(PluginError, match="no plugin file"):
        Kit.from_file(tmp_path / "nowhere.py")
