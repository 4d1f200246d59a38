"""genkit: text generation as parts that plug together.

Everything here is imported when it is first used, so that ``import genkit`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genkit._version import __version__

if TYPE_CHECKING:
    from genkit import backends as backends
    from genkit import decoders as decoders
    from genkit import errors as errors
    from genkit.components import caches as caches
    from genkit.components import contexts as contexts
    from genkit.components import processors as processors
    from genkit.components import samplers as samplers
    from genkit.components import stopping as stopping
    from genkit.conversation import Conversation as Conversation
    from genkit.core.result import Result as Result
    from genkit.core.result import Step as Step
    from genkit.core.result import Stop as Stop
    from genkit.errors import GenkitError as GenkitError
    from genkit.kit import Kit as Kit
    from genkit.kit import load_recipe as load_recipe
    from genkit.pipeline import Pipeline as Pipeline

_MODULES = {
    "backends": "genkit.backends",
    "caches": "genkit.components.caches",
    "contexts": "genkit.components.contexts",
    "decoders": "genkit.decoders",
    "errors": "genkit.errors",
    "processors": "genkit.components.processors",
    "samplers": "genkit.components.samplers",
    "stopping": "genkit.components.stopping",
}

_OBJECTS = {
    "GenkitError": "genkit.errors",
    "Conversation": "genkit.conversation",
    "Kit": "genkit.kit",
    "Pipeline": "genkit.pipeline",
    "Result": "genkit.core.result",
    "Step": "genkit.core.result",
    "Stop": "genkit.core.result",
    "load_recipe": "genkit.kit",
}

__all__ = [
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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _OBJECTS:
        return getattr(import_module(_OBJECTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
