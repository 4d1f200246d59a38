"""What a plugin offers, asked for and checked before any of it is registered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pluggy

from genkit.core.hooks import works_later
from genkit.errors import GenkitError, PluginError, nearest
from genkit.plugins import hookspecs
from genkit.plugins.hookspecs import PART_HOOKS, PROJECT
from genkit.plugins.lazy_part import Lazy
from genkit.plugins.plugin import Plugin, one_line
from genkit.plugins.registry import Entry, ModelEntry, PartEntry, RecipeEntry, check_part_class


def hooks_of(plugin: Plugin, module: object) -> pluggy.PluginManager:
    """What calls the hooks of this plugin alone.

    Every plugin has a manager of its own: it can be asked, named in an error, and dropped, and no
    other plugin takes part.

    Raises:
        PluginError: a hook is misspelt, unmarked or no plain function, or there is none.
    """
    hooks = pluggy.PluginManager(PROJECT)
    hooks.add_hookspecs(hookspecs)
    hooks.register(module, plugin.name)
    _check_names(hooks, module)
    _check_functions(hooks, module)
    return hooks


def entries_of(plugin: Plugin, hooks: pluggy.PluginManager) -> list[Entry]:
    """Everything the plugin wants to register.

    Raises:
        PluginError: a hook returned what it should not.
    """
    return [*_parts(hooks, plugin), *_models(hooks, plugin), *_recipes(hooks, plugin)]


def _check_names(hooks: pluggy.PluginManager, module: object) -> None:
    known = {name for name in vars(hookspecs) if name.startswith("genkit_")}
    callers = hooks.get_hookcallers(module) or []
    for caller in callers:
        optional = all(implementation.optionalhook for implementation in caller.get_hookimpls())
        if not caller.has_spec() and not optional:
            raise PluginError(f"there is no hook {caller.name!r}{nearest(caller.name, known)}")
    hooks.check_pending()
    unmarked = {name for name in known if callable(getattr(module, name, None))}
    unmarked -= {caller.name for caller in callers}
    if unmarked:
        raise PluginError(f"{min(unmarked)} is a hook that is not marked with @hookimpl")
    if not callers:
        raise PluginError("it has no function marked with @hookimpl")


def _check_functions(hooks: pluggy.PluginManager, module: object) -> None:
    for caller in hooks.get_hookcallers(module) or []:
        for implementation in caller.get_hookimpls():
            is_wrapper = implementation.wrapper or implementation.hookwrapper
            how = works_later(implementation.function)
            if how and not is_wrapper:  # pluggy goes through the `yield` of a wrapper
                raise PluginError(
                    f"{caller.name} is {how}, so that calling it does nothing; write a plain "
                    "function, which does its work when it is called"
                )


def _parts(hooks: pluggy.PluginManager, plugin: Plugin) -> Iterator[Entry]:
    for kind, hook in PART_HOOKS.items():
        for item in _items(hooks, hook, list | tuple):
            try:
                yield _part(kind, item, plugin)
            except PluginError as error:
                raise PluginError(f"{hook}: {error}") from None


def _part(kind: str, item: Any, plugin: Plugin) -> PartEntry:
    if isinstance(item, Lazy):
        return PartEntry(kind, item.name, plugin, item)
    part_class = check_part_class(kind, item)
    return PartEntry(kind, part_class.type_name(), plugin, part_class)


def _models(hooks: pluggy.PluginManager, plugin: Plugin) -> Iterator[Entry]:
    hook = "genkit_register_models"
    for name, source in _items(hooks, hook, Mapping):
        if not (name and isinstance(name, str)):
            raise PluginError(f"{hook}: expected a name, found {name!r}")
        where = source.get("model") if isinstance(source, Mapping) else source
        if not (isinstance(where, str | os.PathLike) or callable(where)):
            found = f"no `model` in {source!r}" if isinstance(source, Mapping) else repr(source)
            raise PluginError(f"{hook}: expected where {name!r} is, found {found}")
        if callable(where):
            where = _search(where, f"{plugin}: its model {name!r}")
            source = {**source, "model": where} if isinstance(source, Mapping) else where
        yield ModelEntry("model", name, plugin, source)


def _search(find: Callable[[], Any], what: str) -> Callable[[], Any]:
    """Calls what finds a model; whatever goes wrong there is the plugin's error."""

    def search() -> Any:
        try:
            found = find()
        except (GenkitError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin may well call sys.exit
            raise PluginError(f"{what} cannot be found: {one_line(error)}") from error
        if not isinstance(found, str | os.PathLike):
            raise PluginError(f"{what} cannot be found: expected a path or hub id, found {found!r}")
        return found

    return search


def _recipes(hooks: pluggy.PluginManager, plugin: Plugin) -> Iterator[Entry]:
    hook = "genkit_register_recipes"
    for place in _items(hooks, hook, list | tuple):
        if not isinstance(place, str | os.PathLike):
            raise PluginError(f"{hook}: expected a path, found {place!r}")
        path = Path(place)
        if not path.is_file():
            raise PluginError(f"{hook}: there is no file {str(path)!r}")
        yield RecipeEntry("recipe", path.stem, plugin, path)


def _items(hooks: pluggy.PluginManager, name: str, expected: Any) -> list[Any]:
    """What the implementation of a hook returned, as a list; nothing if there is none."""
    hook = getattr(hooks.hook, name)
    if not hook.get_hookimpls():
        return []
    # pluggy leaves None out of the results
    returned = next(iter(hook()), None)
    if not isinstance(returned, expected):
        what = "mapping" if expected is Mapping else "list"
        raise PluginError(f"{name}: expected a {what}, found {returned!r}")
    return [*(returned.items() if isinstance(returned, Mapping) else returned)]
