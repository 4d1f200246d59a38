"""What a recipe consists of: its keys, the kind of part that each takes, and what is left out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genkit.recipes.document import Document, describe

VERSION = 1

SECTIONS = {
    "backend": "backend",
    "context": "context",
    "cache": "cache_manager",
    "decoder": "decoder",
    "processors": "logits_processor",
    "sampler": "sampler",
    "stop_criteria": "stop_criterion",
}
"""The keys that hold parts, and the kind of part that each takes."""

LISTS = ("processors", "stop_criteria")
"""The keys that hold a list of parts. The order of the list is the order of application."""

KEYS = ("version", *SECTIONS, "seed")

DEFAULTS: Mapping[str, Any] = {
    "context": {"type": "text"},
    "cache": {"type": "dynamic"},
    "decoder": {"type": "autoregressive"},
    "processors": [],
    "sampler": {"type": "greedy"},
    "stop_criteria": [{"type": "eos"}],
    "seed": None,
}
"""What a recipe says by leaving a key out."""

REQUIRED = {
    "version": f"this key is required: write `version: {VERSION}`",
    "backend": "this key is required: write `backend: {type: pytorch, model: ...}`",
}
"""The keys that cannot be left out, and what to say if one is."""

MAX_SEED = 2**64 - 1


def with_defaults(document: Document) -> Document:
    """The document with every key that it leaves out.

    Raises:
        RecipeError: the document is not a mapping.
    """
    data = document.data
    if not isinstance(data, Mapping):
        known = ", ".join(KEYS)
        message = f"a recipe is a mapping with the keys {known}; found {describe(data)}"
        raise document.error((), message)
    return replace(document, data={**copy.deepcopy(dict(DEFAULTS)), **data})
