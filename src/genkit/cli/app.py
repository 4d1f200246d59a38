"""The app: which commands there are, those of plugins included, and how a call ends."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from genkit.cli import errors, options
from genkit.cli.plugin_commands import plugin_commands
from genkit.cli.settings import Settings, settings_of

_ORDER = ("generate", "chat", "score", "verify", "export", "parts", "recipes", "plugins", "doctor")


class _OwnCommands(Mapping[str, Any]):
    """Our own commands by name; each is in the module of its name, imported when it is asked for.

    What the other commands need is most of what a short one would wait for.
    """

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(_ORDER)

    def __len__(self) -> int:
        return len(_ORDER)

    def __getitem__(self, name: str) -> Any:
        if name not in _ORDER:
            raise KeyError(name)
        if name not in self._made:
            holder = typer.Typer(rich_markup_mode=None)
            import_module(f"genkit.cli.{name}").add_to(holder)
            self._made[name] = typer.main.get_group(holder).commands[name]
        return self._made[name]


class Commands(TyperGroup):
    """Our own commands, and those of plugins.

    Plugins are loaded only for the list of all commands and for a command that is not ours, so that
    none of our commands depends on a plugin that it does not use.
    """

    _plugins: dict[str, Any] | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _OwnCommands()  # type: ignore[assignment]  # nothing is ever added

    def list_commands(self, ctx: Any) -> list[str]:
        """The names for the help, ours first."""
        return [*_ORDER, *self._of_plugins(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        return self.commands.get(cmd_name) or self._of_plugins(ctx).get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what typer would answer in its own way is answered in ours."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, EOFError, OSError) as error:
            raise typer.Exit(errors.report(error, settings_of(ctx).debug)) from error

    def _of_plugins(self, ctx: Any) -> dict[str, Any]:
        if self._plugins is None:
            self._plugins = plugin_commands(settings_of(ctx).plugins, taken=self.commands)
        return self._plugins


app = typer.Typer(
    name="genkit",
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from genkit._version import __version__

        typer.echo(f"genkit {__version__}")
        raise typer.Exit


@app.callback(
    epilog="""\b
Example:
  genkit generate "What is the capital of France?"
"""
)
def _genkit(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Generate text with language models, from parts that plug together."""


class _Ended(BaseException):
    """A signal has come. It is no SystemExit, which would pass for a failure of some part."""


def run(argv: Sequence[str] | None) -> int:
    """Run one command and return its exit status."""
    if argv is None:
        argv = sys.argv[1:]
        _never_fail_to_print()
        _end_tidily()
    settings = Settings()
    with _warnings_shown():
        try:
            typer.main.get_command(app).main(args=list(argv), prog_name="genkit", obj=settings)
            status = 0
        except _Ended as end:
            status = end.args[0]
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):  # of a plugin's command
                typer.echo(end.code, err=True)
        except (KeyboardInterrupt, Exception) as error:
            status = errors.report(error, settings.debug)
    return _flush() or status


def _flush() -> int:
    """Print what is still held back; the exit status if that fails, otherwise 0."""
    try:
        if sys.stdout is not None:  # None: the process was started without one
            sys.stdout.flush()
    except OSError as error:
        status = errors.report(error)
        errors.drop_output()
        return status
    return 0


def _end_tidily() -> None:
    """End on a signal as on an error: what is half done is undone, programs that run are ended."""

    def end(number: int, frame: object) -> None:
        raise _Ended(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) == signal.SIG_DFL:
            signal.signal(getattr(signal, name), end)


def _never_fail_to_print() -> None:
    """A terminal that lacks a character gets a question mark, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """What the library logs as a warning appears on standard error, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    logger = logging.getLogger("genkit")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
