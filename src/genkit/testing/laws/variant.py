"""The same pipeline with other parts."""

from __future__ import annotations

import copy
from typing import Any

from genkit.components.base import Component
from genkit.pipeline import Pipeline


def variant_of(pipeline: Pipeline, **parts: Any) -> Pipeline:
    """A pipeline with some parts replaced, and without observers.

    Args:
        pipeline: stays as it is.
        parts: `model`, `decoder`, `cache`, `processors`, `sampler` or `stop_criteria`.
    """
    model = parts.pop("model", pipeline.model)
    return Pipeline(
        model,
        tokenizer=pipeline.tokenizer,
        context=pipeline.context,
        **{**vars(pipeline.parts), **parts},
    )


def with_new_cache(pipeline: Pipeline) -> Pipeline:
    """The same pipeline, with a manager that knows nothing of earlier runs.

    A component is made anew from its options; any other object is copied.
    """
    manager = pipeline.parts.cache
    if isinstance(manager, Component):
        options = {name: getattr(manager, name) for name in manager.model_fields_set}
        return variant_of(pipeline, cache=type(manager)(**options))
    return variant_of(pipeline, cache=copy.deepcopy(manager))
