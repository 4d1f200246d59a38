"""How parts reach genkit from outside, and from inside.

A plugin is a module or object whose functions carry `hookimpl`; `genkit.plugins.hookspecs` lists
the hooks. This package is the only place that knows pluggy, and importing it is cheap::

    from genkit.plugins import hookimpl, lazy

    @hookimpl
    def genkit_register_logits_processors():
        return [lazy("calm", "genkit_calm.parts:Calm", summary="Lowers what shouts.")]
"""

from genkit.plugins.api import API_VERSION
from genkit.plugins.hookspecs import hookimpl
from genkit.plugins.lazy_part import Lazy, lazy

__all__ = ["API_VERSION", "Lazy", "hookimpl", "lazy"]
