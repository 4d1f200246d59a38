"""Which plugin a word of the command line means."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from genkit.errors import PluginError, UnknownNameError

if TYPE_CHECKING:
    from genkit.cli.settings import Settings
    from genkit.kit import Kit
    from genkit.plugins.plugin import Plugin

_PROJECT = "pyproject.toml"


def find_plugin(settings: Settings, target: str) -> tuple[Kit, Plugin]:
    """The plugin, loaded, and the kit that has it.

    Args:
        settings: of the call.
        target: the name of a plugin or of its distribution, the path of a Python file, or the
            folder of a package, which need not be installed.

    Raises:
        PluginError: it cannot be loaded.
        UnknownNameError: there is no such plugin.
    """
    path = Path(target)
    if (path / _PROJECT).is_file():
        return _in_folder(settings, path.resolve())
    if path.suffix == ".py":
        settings.plugins.append(path)
        kit = settings.kit()
        return kit, list(kit.plugins)[-1]
    return settings.kit(), _named(settings.kit(), target)


def _named(kit: Kit, name: str) -> Plugin:
    found = [plugin for plugin in kit.plugins if name in (plugin.name, plugin.distribution)]
    if not found:
        names = [plugin.name for plugin in kit.plugins]
        hint = f"Other plugins are given as FILE.py, or as a folder with a {_PROJECT}"
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
        loaded = import_module(module)
    except (Exception, SystemExit) as error:  # a plugin may well call sys.exit
        from genkit.plugins.plugin import one_line

        raise PluginError(
            f"plugin {name!r} ({folder}) cannot be loaded: {one_line(error)}"
        ) from error
    from genkit.kit import Kit

    kit = Kit([*settings.plugins, loaded])
    return kit, list(kit.plugins)[-1]


def _entry_point(folder: Path) -> tuple[str, str]:
    """Name and module of the one plugin of a package."""
    import tomllib

    file = folder / _PROJECT
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PluginError(f"{file} cannot be read: {error}") from None
    points = project.get("entry-points", {}).get("genkit", {})
    if len(points) != 1:
        found = f"has {len(points)}: {', '.join(points)}" if points else "has none"
        raise PluginError(
            f"{file} {found}; one entry point in [project.entry-points.genkit] is expected, such "
            'as calm = "genkit_calm"; of several, check each by its name once it is installed'
        )
    [(name, module)] = points.items()
    return name, module
