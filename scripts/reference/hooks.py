"""The page of the hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from reference.docstrings import says_something
from reference.markdown import fence, prose
from reference.parts import file_name, title
from reference.undocumented import Undocumented

_HEAD = """\
# Hooks

A plugin is a module, or an object, whose functions carry `hookimpl`. It implements as many of these
hooks as it likes, and takes as many of their arguments as it needs. A misspelt hook is an error.
"""


def hook_page(module: ModuleType) -> str:
    """Every hook of a module of specifications.

    Raises:
        Undocumented: a hook has no docstring, or is not marked as one.
    """
    hooks = dict(_hooks(module))
    lacks = [lack for name, hook in hooks.items() for lack in _lacks(module, name, hook)]
    if lacks:
        raise Undocumented(lacks)
    observing = {name: hooks.pop(name) for name in module.OBSERVATION_HOOKS}
    kinds = {hook: kind for kind, hook in module.PART_HOOKS.items()}
    return "\n\n".join(
        [
            _HEAD,
            "## Registering",
            "Called to learn what a plugin brings. A part is a class, or "
            "[`lazy(...)`](python.md#genkit.plugins.lazy_part.lazy), "
            "which imports it when it is used.",
            *(_section(name, hook, kinds.get(name)) for name, hook in hooks.items()),
            "## Observing",
            "Called while a pipeline runs. They return nothing and change nothing.",
            *(_section(name, hook, None) for name, hook in observing.items()),
        ]
    )


def _hooks(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if name.startswith(f"{module.PROJECT}_"):
            yield name, value


def _lacks(module: ModuleType, name: str, hook: Callable[..., Any]) -> Iterator[str]:
    if not hasattr(hook, f"{module.PROJECT}_spec"):
        yield f"hook {name}: it is not marked with @hookspec"
    if not says_something(hook):
        yield f"hook {name}: it has no docstring"


def _section(name: str, hook: Callable[..., Any], kind: str | None) -> str:
    signature = str(inspect.signature(hook)).replace("'", "")
    blocks = [
        f"### {name}",
        fence("python", f"def {name}{signature}: ..."),
        prose(inspect.getdoc(hook) or ""),
    ]
    if kind is not None:
        blocks.append(f"What comes with genkit: [{title(kind).lower()}]({file_name(kind)}).")
    return "\n\n".join(blocks)
