"""Every hook that a plugin may implement: when it is called and what it returns.

Registration hooks are called once, when a `Kit` is built. Those for parts return a list whose items
are classes or `lazy(...)`. Observation hooks are called while a pipeline runs; they return nothing
and change nothing. A plugin implements as many as it likes; a misspelt one is an error, and so is
an `async def` or a function with a `yield`, whose call would do nothing.
"""

# A specification has a docstring for a body.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from genkit.core.hooks import OBSERVATION_HOOKS as OBSERVATION_HOOKS

if TYPE_CHECKING:
    from genkit.backends.base import Backend, ModelSource
    from genkit.components.base import (
        CacheManager,
        Context,
        Decoder,
        LogitsProcessor,
        Sampler,
        StopCriterion,
    )
    from genkit.core.result import Result, Step
    from genkit.core.run import Run
    from genkit.exporters.base import Exporter
    from genkit.plugins.lazy_part import Lazy

PROJECT = "genkit"
"""The name by which pluggy knows us, and the group of our entry points."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin: it implements the hook that has its name."""

PART_HOOKS = {
    "backend": "genkit_register_backends",
    "context": "genkit_register_contexts",
    "cache_manager": "genkit_register_cache_managers",
    "decoder": "genkit_register_decoders",
    "logits_processor": "genkit_register_logits_processors",
    "sampler": "genkit_register_samplers",
    "stop_criterion": "genkit_register_stop_criteria",
    "exporter": "genkit_register_exporters",
}
"""The hook that registers each kind of part."""


@hookspec
def genkit_register_backends() -> Sequence[type[Backend] | Lazy]:
    """Called when a `Kit` is built. Returns the backends: what yields a model."""


@hookspec
def genkit_register_contexts() -> Sequence[type[Context] | Lazy]:
    """Called when a `Kit` is built. Returns the contexts: what turns a prompt into ids."""


@hookspec
def genkit_register_cache_managers() -> Sequence[type[CacheManager] | Lazy]:
    """Called when a `Kit` is built. Returns the cache managers."""


@hookspec
def genkit_register_decoders() -> Sequence[type[Decoder] | Lazy]:
    """Called when a `Kit` is built. Returns the decoders: loops over a pipeline's parts."""


@hookspec
def genkit_register_logits_processors() -> Sequence[type[LogitsProcessor] | Lazy]:
    """Called when a `Kit` is built. Returns the logits processors."""


@hookspec
def genkit_register_samplers() -> Sequence[type[Sampler] | Lazy]:
    """Called when a `Kit` is built. Returns the samplers."""


@hookspec
def genkit_register_stop_criteria() -> Sequence[type[StopCriterion] | Lazy]:
    """Called when a `Kit` is built. Returns the stop criteria."""


@hookspec
def genkit_register_exporters() -> Sequence[type[Exporter] | Lazy]:
    """Called when a `Kit` is built. Returns the exporters: what writes a model to a file."""


@hookspec
def genkit_register_models() -> Mapping[str, ModelSource]:
    """Called when a `Kit` is built.

    Returns named models: a name for recipes, and where the model is: a folder, a GGUF file or a hub
    id; a callable that finds one of these when the model is loaded; or options of the backend.
    Nothing is read or downloaded before somebody loads the model.
    """


@hookspec
def genkit_register_recipes() -> Sequence[str | os.PathLike[str]]:
    """Called when a `Kit` is built.

    Returns the paths of recipe files. A recipe's name is its file's name without `.yaml`.
    """


@hookspec
def genkit_register_commands(app: Any) -> None:
    """Called when the command line starts. Adds commands to `app`, a `typer.Typer`."""


@hookspec
def genkit_run_started(run: Run) -> None:
    """Called before the first step of a run, with the facts of the run."""


@hookspec
def genkit_step(run: Run, step: Step) -> None:
    """Called after each step, before the next one is computed. `step` must not be changed."""


@hookspec
def genkit_run_finished(run: Run, result: list[Result]) -> None:
    """Called when a run has come to its end or was left early, with one result for each row."""


@hookspec
def genkit_run_failed(run: Run, error: BaseException) -> None:
    """Called when a run ends with an error or is interrupted; `error` is raised afterwards."""
