"""A kit: plugins, the parts they bring, and recipes that choose among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from genkit.core.settings import KeyPath
from genkit.errors import FAILURES, GenkitError, ModelLoadError, UnknownNameError
from genkit.plugins.manager import PluginManager
from genkit.plugins.registry import PartEntry, Registry
from genkit.recipes.load import RecipeSource, load
from genkit.recipes.recipe import Recipe

if TYPE_CHECKING:
    from genkit.backends.base import Backend
    from genkit.core.contracts import Model
    from genkit.exporters.base import Exporter
    from genkit.exporters.exporting import Export
    from genkit.pipeline import Pipeline

__all__ = ["Kit", "load_recipe"]

Progress = Callable[[str], Any]


class Kit:
    """Everything that is registered, and what can be made of it.

    Kits are independent of each other; there is no global one.

    Args:
        plugins: modules, objects, or paths of Python files, besides those that are installed.
        entry_points: whether to use the plugins that are installed.
        strict: whether an installed plugin that cannot be loaded is an error; by default it is
            warned about and left out.

    Attributes:
        plugins: the plugins, loaded or not, and what calls their hooks.
        registry: the parts, models and recipes that they have registered.

    Raises:
        PluginError: one of `plugins` cannot be loaded.
    """

    def __init__(
        self, plugins: Iterable[object] = (), *, entry_points: bool = True, strict: bool = False
    ) -> None:
        self.plugins = PluginManager(plugins, entry_points=entry_points, strict=strict)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        plugins: Iterable[object] = (),
        entry_points: bool = True,
        strict: bool = False,
    ) -> Self:
        """A kit with a plugin that is a single Python file, without packaging.

        Raises:
            PluginError: the file cannot be loaded.
        """
        return cls([*plugins, path], entry_points=entry_points, strict=strict)

    @property
    def registry(self) -> Registry:
        """The parts, models and recipes that plugins have registered."""
        return self.plugins.registry

    def parts(self, kind: str | None = None) -> list[PartEntry]:
        """The registered parts of one kind, or of all; their classes are not imported.

        Raises:
            UnknownNameError: there is no such kind.
        """
        return self.registry.parts(kind)

    def recipe(self, source: RecipeSource, overrides: Iterable[str] = ()) -> Recipe:
        """Read and check a recipe. No model is loaded.

        Args:
            source: the path of a file, the name of a registered recipe, or plain data.
            overrides: ``path.to.key=value`` each, such as ``processors.0.temperature=0.5``.

        Raises:
            RecipeError: it cannot be read, or something in it is wrong.
            UnknownNameError: no recipe is registered under that name.
        """
        return replace(load(source, self.registry, overrides), builder=self.build)

    def load(self, backend: Backend, progress: Progress | None = None) -> Model:
        """Load a backend's model; its name may be a registered one.

        Raises:
            ModelLoadError: the model cannot be loaded.
            UnknownNameError: the model is neither a place nor a registered name.
        """
        with self._hints():
            try:
                return backend.load(models=self.registry.models(), progress=progress)
            except (GenkitError, KeyboardInterrupt):
                raise
            except FAILURES as error:
                from genkit.core.contracts import place_of  # it brings torch, which is there by now

                what = f"raised {type(error).__name__}: {error}"
                raise ModelLoadError(f"{place_of('backend', backend)} {what}") from error

    def export(
        self,
        exporter: Exporter,
        model: str,
        out: str | os.PathLike[str],
        progress: Progress | None = None,
    ) -> Export:
        """Write a model as an ONNX graph; its name may be a registered one.

        Raises:
            GenkitError: as `genkit.exporters.export`.
        """
        from genkit.exporters.exporting import export

        with self._hints():
            return export(
                model, Path(out), exporter, models=self.registry.models(), progress=progress
            )

    @contextmanager
    def _hints(self) -> Iterator[None]:
        """Add to an error about the name of a model what may explain it."""
        try:
            yield
        except UnknownNameError as error:
            for hint in self.registry.hints("model", error.name):
                error.add_note(hint)
            raise

    def build(
        self,
        recipe: Recipe | RecipeSource,
        overrides: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> Pipeline:
        """Load the model of a recipe and put its pipeline together.

        Args:
            recipe: a recipe, or what `recipe` takes.
            overrides: as for `recipe`; only if `recipe` is not a `Recipe` already.
            progress: called with one line for a person when a long piece of work begins.

        Raises:
            RecipeError, UnknownNameError: as `recipe`.
            ModelLoadError: the model cannot be loaded.
            UnsupportedError: two parts cannot work together.
        """
        overrides = list(overrides)
        if not isinstance(recipe, Recipe):
            recipe = self.recipe(recipe, overrides)
        elif overrides:
            raise TypeError("a recipe is checked already; give its overrides to Kit.recipe")
        from genkit.pipeline import Pipeline

        with _located(recipe, ("backend",)):
            model = self.load(recipe.backend, progress)
        with _located(recipe, ()):
            pipeline = Pipeline(
                model,
                context=recipe.context,
                cache=recipe.cache,
                decoder=recipe.decoder,
                processors=recipe.processors,
                sampler=recipe.sampler,
                stop_criteria=recipe.stop_criteria,
                observers=self.plugins.observers(),
                seed=recipe.seed,
            )
        pipeline.settings = tuple(recipe.settings())
        return pipeline


def load_recipe(
    source: RecipeSource, overrides: Iterable[str] = (), *, kit: Kit | None = None
) -> Recipe:
    """Read and check a recipe; ``load_recipe("recipe.yaml").build()`` is its pipeline.

    Args:
        source: the path of a file, the name of a registered recipe, or plain data.
        overrides: ``path.to.key=value`` each.
        kit: whose parts it may name; by default a new `Kit` with what is installed.

    Raises:
        RecipeError, UnknownNameError: as `Kit.recipe`.
    """
    return (kit or Kit()).recipe(source, overrides)


@contextmanager
def _located(recipe: Recipe, path: KeyPath) -> Iterator[None]:
    """Add to an error which recipe it comes from, and which key."""
    try:
        yield
    except GenkitError as error:
        place = recipe.document.place(path)
        if place:
            error.add_note(f"{place}: {'.'.join(map(str, path))}" if path else place)
        raise
