"""Where plugins are found. Finding one does not import it."""

from __future__ import annotations

import os
import re
import sys
import zlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from genkit.errors import PluginError
from genkit.plugins.api import check_api, stated_api
from genkit.plugins.hookspecs import PROJECT
from genkit.plugins.plugin import Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DISABLE_VARIABLE = "GENKIT_DISABLE_PLUGINS"


def installed_plugins() -> list[Plugin]:
    """What installed distributions announce, in the order of their names, none of it imported.

    Those that `GENKIT_DISABLE_PLUGINS` names, by plugin or by distribution, are marked `disabled`.
    """
    from importlib.metadata import entry_points  # costs more than all the rest of a kit

    found = [_from_entry_point(entry_point) for entry_point in entry_points(group=PROJECT)]
    disabled = _disabled_names()
    for plugin in found:
        if {normal_name(plugin.name), normal_name(plugin.distribution or "")} & disabled:
            plugin.state = "disabled"
    return sorted(found, key=lambda plugin: (plugin.name, plugin.origin))


def built_in_plugin() -> Plugin:
    """The parts that come with genkit."""

    def load() -> object:
        from genkit.plugins import builtin

        return builtin

    return Plugin(PROJECT, "built-in", "genkit.plugins.builtin", load)


def given_plugin(plugin: object) -> Plugin:
    """A plugin that was handed over: a module, an object, or the path of a Python file."""
    if isinstance(plugin, (str, os.PathLike)):
        path = Path(plugin)
        return Plugin(path.stem, "file", str(path), lambda: _run_file(path))
    kind = type(plugin).__name__
    if isinstance(plugin, ModuleType):
        return Plugin(plugin.__name__, "object", f"module {plugin.__name__}", lambda: plugin)
    name = getattr(plugin, "name", None)
    return Plugin(
        name if isinstance(name, str) else getattr(plugin, "__name__", kind),
        "object",
        f"an object of class {kind}",
        lambda: plugin,
    )


def _from_entry_point(entry_point: EntryPoint) -> Plugin:
    distribution = entry_point.dist
    return Plugin(
        entry_point.name,
        "distribution",
        entry_point.value,
        partial(load_entry_point, entry_point),
        distribution.name if distribution else None,
        distribution.version if distribution else None,
    )


def load_entry_point(entry_point: EntryPoint) -> object:
    """Import the module, or the object in it, that an entry point names.

    Raises:
        PluginError: it names none, or fails and is made for another version of genkit.
        BaseException: whatever its import raises.
    """
    if not entry_point.pattern.match(entry_point.value):
        raise PluginError(
            f"its entry point is {entry_point.value!r}, and should be a module, or module:object"
        )
    try:
        return entry_point.load()
    except BaseException:
        # One that is made for another version may well fail at what is new there.
        check_api(stated_api(_source_of(entry_point.module)))
        raise


def _source_of(module: str) -> bytes:
    """The source of a module that is not imported; empty if it cannot be found."""
    try:
        found = find_spec(module)
        return Path(found.origin).read_bytes() if found and found.origin else b""
    except (ImportError, OSError, ValueError):
        return b""


def _run_file(path: Path) -> ModuleType:
    """Run a file as a module; one that is as it was before is run once.

    Compiled here and not by the import system, whose bytecode cache would take a file edited twice
    within a second for the old one. Pydantic, dataclasses and pickle look their module up in
    `sys.modules`.
    """
    if not path.is_file():
        raise PluginError(f"there is no plugin file {str(path)!r}")
    name = f"genkit_plugin_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    source = path.read_bytes()
    before = sys.modules.get(name)
    if before is not None and vars(before).get("__source__") == source:
        return before
    module = ModuleType(name)
    vars(module).update(__file__=str(path), __source__=source)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        check_api(stated_api(source))
        raise
    return module


def _disabled_names() -> set[str]:
    names = os.environ.get(DISABLE_VARIABLE, "").split(",")
    return {normal_name(name.strip()) for name in names} - {""}


def normal_name(name: str) -> str:
    """Names of distributions differ neither by case nor by `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", name).lower()
