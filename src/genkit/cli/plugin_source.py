"""Which plugin a word of the command line means."""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

from genkit.cli.settings import prints_aside
from genkit.errors import FAILURES, PluginError, UnknownNameError
from genkit.plugins.discovery import load_entry_point, normal_name
from genkit.plugins.hookspecs import PROJECT

if TYPE_CHECKING:
    from genkit.cli.settings import Settings
    from genkit.kit import Kit
    from genkit.plugins.plugin import Plugin

_FILE = "pyproject.toml"


def find_plugin(settings: Settings, target: str) -> tuple[Kit, Plugin]:
    """The plugin, loaded, and the kit that has it.

    Args:
        settings: of the call.
        target: the name of a plugin or of its distribution, the path of a Python file, or the
            folder of a package, which need not be installed. A name comes first: `./calm` is a
            folder.

    Raises:
        PluginError: it cannot be loaded.
        UnknownNameError: there is no such plugin.
    """
    path = Path(target)
    if path.suffix == ".py":
        settings.plugins.append(path)
        kit = settings.kit()
        return kit, list(kit.plugins)[-1]
    is_name = target == path.name and any(map(partial(_is_called, target), settings.kit().plugins))
    if not is_name and (path / _FILE).is_file():
        return _in_folder(settings, path.resolve())
    return settings.kit(), _named(settings.kit(), target)


def _is_called(name: str, plugin: Plugin) -> bool:
    names = filter(None, (plugin.name, plugin.distribution))
    return normal_name(name) in map(normal_name, names)


def _named(kit: Kit, name: str) -> Plugin:
    found = [plugin for plugin in kit.plugins if _is_called(name, plugin)]
    if not found:
        names = [plugin.name for plugin in kit.plugins]
        hint = f"Other plugins are given as FILE.py, or as a folder with a {_FILE}"
        raise UnknownNameError("plugin", name, names, hint)
    for plugin in found:
        if plugin.state != "loaded":
            cause = plugin.cause or "GENKIT_DISABLE_PLUGINS disables it"
            raise PluginError(f"{plugin} is not loaded: {cause}")
    return found[0]


def _in_folder(settings: Settings, folder: Path) -> tuple[Kit, Plugin]:
    name, module = _entry_point(folder)
    kit = settings.kit()
    if any(plugin.name == name and plugin.distribution for plugin in kit.plugins):
        plugin = _named(kit, name)
        origin = getattr(plugin.load(), "__file__", None) or ""
        if not Path(origin).resolve().is_relative_to(folder):
            raise PluginError(
                f"{plugin} is installed from elsewhere ({origin}), and would be checked in place "
                f"of {folder}; check it by its name, or install the folder: pip install -e {folder}"
            )
        return kit, plugin
    source = folder / "src"
    sys.path.insert(0, str(source if source.is_dir() else folder))
    try:
        with prints_aside():
            loaded = load_entry_point(EntryPoint(name, module, PROJECT))
    except FAILURES as error:
        from genkit.plugins.plugin import one_line

        cause = str(error) if isinstance(error, PluginError) else one_line(error)
        raise PluginError(f"plugin {name!r} ({folder}) cannot be loaded: {cause}") from error
    from genkit.kit import Kit

    kit = Kit([*settings.plugins, loaded])
    return kit, list(kit.plugins)[-1]


def _entry_point(folder: Path) -> tuple[str, str]:
    """Name and module of the one plugin of a package."""
    import tomllib

    file = folder / _FILE
    try:
        points = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PluginError(f"{file} cannot be read: {error}") from None
    for key in ("project", "entry-points", PROJECT):
        points = points.get(key, {})
        if not isinstance(points, dict):
            raise PluginError(f"{file}: `{key}` is a table, found {points!r}")
    if len(points) != 1:
        found = f"has {len(points)}: {', '.join(points)}" if points else "has none"
        raise PluginError(
            f"{file} {found}; one entry point in [project.entry-points.genkit] is expected, such "
            'as calm = "genkit_calm"; of several, check each by its name once it is installed'
        )
    [(name, module)] = points.items()
    if not isinstance(module, str) or not EntryPoint.pattern.match(module):
        raise PluginError(f"{file}: the entry point {name!r} is no module, but {module!r}")
    return name, module
