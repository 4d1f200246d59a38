"""The version of what plugins build on, and which versions a plugin works with."""

from __future__ import annotations

from typing import Any

from genkit.errors import PluginError

__all__ = ["API_VERSION", "check_api", "stated_api"]

API_VERSION = "1.0"
"""The version of the hooks, the base classes and the contracts of parts.

The second number grows when something is added, and the first when a plugin may have to change.
"""


def stated_api(source: bytes) -> object:
    """What the source of a module says as `genkit_api`, without running it; None: nothing."""
    import ast  # for one that fails only

    try:
        for node in ast.parse(source).body:
            match node:
                case ast.Assign([ast.Name("genkit_api")], value):
                    return ast.literal_eval(value)
                case ast.AnnAssign(ast.Name("genkit_api"), _, ast.expr() as value):
                    return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        pass
    return None


def check_api(wanted: Any) -> None:
    """Refuse a plugin that says that it works with other versions.

    A plugin may say so as ``genkit_api = ">=1.2,<2"``, in the notation of dependencies (PEP 440).

    Args:
        wanted: what it says; None: nothing.

    Raises:
        PluginError: it names other versions, or none that can be read.
    """
    if wanted is None:
        return
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # for those who ask only

    try:
        if not isinstance(wanted, str):
            raise InvalidSpecifier
        fits = SpecifierSet(wanted).contains(API_VERSION)
    except InvalidSpecifier:
        raise PluginError(
            f"its genkit_api is {wanted!r}; versions are written as a text like '>=1.0,<2'"
        ) from None
    if not fits:
        raise PluginError(
            f"it works with version {wanted} of genkit's plugin API, and this genkit has "
            f"{API_VERSION}; install a version of the plugin that fits, or another genkit"
        )
