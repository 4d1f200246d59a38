"""Loads plugins, and keeps the harm of a broken one to itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from genkit.errors import PluginError
from genkit.plugins.api import check_api
from genkit.plugins.discovery import (
    DISABLE_VARIABLE,
    built_in_plugin,
    given_plugin,
    installed_plugins,
)
from genkit.plugins.hookspecs import OBSERVATION_HOOKS
from genkit.plugins.offer import entries_of, hooks_of
from genkit.plugins.plugin import Plugin, one_line
from genkit.plugins.registry import Registry

_logger = logging.getLogger("genkit.plugins")

SLOW = 1.0
"""After how many seconds of loading a plugin is warned about."""


class PluginManager:
    """The plugins of one `Kit`: those built in, those installed, and those handed over.

    An installed plugin that fails costs its own parts, all of them, and is warned about once; a
    plugin that was handed over and fails is an error, because somebody asked for it. Iterating
    gives every `Plugin`, loaded or not.

    Args:
        plugins: modules, objects, or paths of Python files.
        entry_points: whether to load what is installed.
        strict: whether an installed plugin that fails is an error too.

    Attributes:
        registry: what the loaded ones have registered.

    Raises:
        PluginError: a plugin that was handed over cannot be loaded.
    """

    def __init__(
        self, plugins: Iterable[object] = (), *, entry_points: bool = True, strict: bool = False
    ) -> None:
        self.registry = Registry()
        self._plugins: list[Plugin] = []
        self._load(built_in_plugin(), strict=True)
        for plugin in installed_plugins() if entry_points else []:
            self._load(plugin, strict=strict)
        for given in plugins:
            self._load(given_plugin(given), strict=True)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins)

    def __len__(self) -> int:
        return len(self._plugins)

    def observers(self) -> list[SimpleNamespace]:
        """One observer for each plugin that watches runs, with the functions it implements.

        A function that a plugin does not implement is not there, so that a pipeline which nobody
        watches can see so, once. One of an installed plugin is marked as `installed`: nobody has
        asked for it by name, and its errors end no run.
        """
        observers = []
        for plugin in self._plugins:
            calls = {hook: _implementation(plugin, hook) for hook in OBSERVATION_HOOKS}
            present = {hook: _by_position(call) for hook, call in calls.items() if call is not None}
            if present:
                installed = plugin.source == "distribution"
                observers.append(SimpleNamespace(name=plugin.name, installed=installed, **present))
        return observers

    def commands(self, make_app: Callable[[], Any]) -> Iterator[tuple[Plugin, Any]]:
        """Each plugin that brings commands, and the app that it has added them to.

        Args:
            make_app: makes a `typer.Typer`.
        """
        for plugin in self._plugins:
            register = _implementation(plugin, "genkit_register_commands")
            if register is None:
                continue
            app = make_app()
            self._attempt(plugin, partial(register, app=app), strict=False)
            if plugin.state == "loaded":
                yield plugin, app

    def _load(self, plugin: Plugin, *, strict: bool) -> None:
        self._plugins.append(plugin)
        if plugin.state == "disabled":
            self.registry.absent.append(plugin)
        else:
            self._attempt(plugin, partial(self._admit, plugin), strict=strict)

    def _admit(self, plugin: Plugin) -> None:
        for other in self._plugins:
            if other.name == plugin.name and other.state == "loaded":
                raise PluginError(f"two plugins have one name: {other} and {plugin}")
        module = plugin.load()
        # First of all: whatever else is wrong may come of that.
        check_api(getattr(module, "genkit_api", None))
        hooks = hooks_of(plugin, module)
        entries = entries_of(plugin, hooks)
        for clash in self.registry.add(entries):
            _warn_once(
                f"{clash}; who uses it gets an error until one is left out with "
                f"{DISABLE_VARIABLE}={plugin.name}, say"
            )
        plugin.parts = tuple((entry.kind, entry.name) for entry in entries)
        plugin.hooks = hooks
        plugin.state = "loaded"

    def _attempt(self, plugin: Plugin, action: Callable[[], None], *, strict: bool) -> None:
        """Do something with a plugin; if it fails, nothing of the plugin stays."""
        began = time.perf_counter()
        try:
            action()
        except KeyboardInterrupt:
            _logger.warning("interrupted while loading %s", plugin)
            raise
        except BaseException as error:  # a plugin may well call sys.exit
            self._withdraw(plugin, error)
            if strict:
                raise PluginError(f"{plugin} cannot be loaded: {plugin.cause}") from error
            _warn_once(
                f"{plugin} is left out: {plugin.cause} ({DISABLE_VARIABLE}="
                f"{self._only_name_of(plugin)} silences this)"
            )
        finally:
            plugin.seconds += time.perf_counter() - began
        # One that was handed over is about to be used.
        is_installed = plugin.source == "distribution" and plugin.state == "loaded"
        if is_installed and plugin.seconds > SLOW:
            _warn_once(
                f"{plugin} took {plugin.seconds:.1f} s to load, before any of it is used; its "
                "author can import what is heavy in the modules that lazy(...) names "
                f"({DISABLE_VARIABLE}={self._only_name_of(plugin)} leaves it out)"
            )

    def _only_name_of(self, plugin: Plugin) -> str:
        """A name that disables this plugin and no other."""
        shared = any(other.name == plugin.name for other in self._plugins if other is not plugin)
        return plugin.distribution if shared and plugin.distribution else plugin.name

    def _withdraw(self, plugin: Plugin, error: BaseException) -> None:
        self.registry.discard(plugin)
        self.registry.absent.append(plugin)
        plugin.parts = ()
        plugin.hooks = None
        plugin.state = "broken"
        plugin.cause = str(error) if isinstance(error, PluginError) else one_line(error)


def _implementation(plugin: Plugin, hook: str) -> Callable[..., Any] | None:
    """Calls a hook of this plugin, or None if the plugin does not implement it."""
    return getattr(plugin.hooks.hook, hook) if plugin.hooks and plugin.implements(hook) else None


def _by_position(hook: Any) -> Callable[..., None]:
    """Observers are called with positions, pluggy's hooks with names."""
    names = hook.spec.argnames

    def call(*arguments: object) -> None:
        hook(**dict(zip(names, arguments, strict=True)))

    return call


@cache
def _warn_once(line: str) -> None:
    _logger.warning(line)
