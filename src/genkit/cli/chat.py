"""`genkit chat`: a conversation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import typer

from genkit.cli import errors, options
from genkit.cli.output import is_terminal, remark, write
from genkit.cli.pipelines import build, read_recipe
from genkit.cli.settings import each_aside, prints_aside, settings_of
from genkit.cli.text_input import check_text, read_lines, unescape

if TYPE_CHECKING:
    from genkit.conversation import Conversation

_EPILOG = """
\b
Examples:
  genkit chat
  genkit chat -r recipe.yaml --seed 7 --system "You are a pirate."
  printf 'Hello!\\nWhat did I just say?\\n' | genkit chat
"""

_COMMANDS = """\
/reset  forget the conversation and begin a new one
/help   this list
/exit   end, as Ctrl-D does
A line that begins with // is sent with one /.
Ctrl-C ends an answer, and the conversation goes on."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="Talk with a model.")(chat)


def chat(
    ctx: typer.Context,
    recipe: options.Recipe = options.DEFAULT_RECIPE,
    overrides: options.Overrides = None,
    system: options.System = None,
    stop: options.Stop = None,
    seed: options.Seed = None,
    max_new_tokens: options.MaxNewTokens = None,
    escapes: options.Escapes = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Talk with a model, line by line.

    Piped lines are messages, and their answers are printed one after the other. With --seed the
    first turn has this seed and each later turn the next one. Type /help for what else there is.
    """
    read: Callable[[str], str] = unescape if escapes else str
    system = None if system is None else read(check_text("--system", system))
    stops = [read(check_text("--stop", string)) for string in stop or ()]
    chosen = read_recipe(ctx, recipe, overrides, system=system, stop=stops)
    from genkit.conversation import Conversation, check_context

    check_context(chosen.context)  # before the model is loaded
    conversation = Conversation(build(ctx, chosen), seed=seed)
    session = _Session(conversation, max_new_tokens, read, settings_of(ctx).debug)
    for line in session.lines():
        if not session.say(line):
            break


class _Session:
    """Reads messages, shows answers, obeys the commands that begin with a stroke."""

    def __init__(
        self,
        conversation: Conversation,
        limit: int | None,
        read: Callable[[str], str],
        debug: bool,
    ) -> None:
        self.conversation = conversation
        self.limit = limit
        self.read = read
        self.debug = debug
        self.interactive = is_terminal(sys.stdin)
        self.num_notes = 0

    def lines(self) -> Iterator[str]:
        """The lines that are not empty, until the input ends."""
        if not self.interactive:
            yield from filter(str.strip, read_lines())
            return
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (input() edits the line with it)
        remark("/help lists the commands, Ctrl-D ends.")
        while True:
            try:
                line = _ask("> ")
            except EOFError:
                typer.echo(err=True)
                return
            except KeyboardInterrupt:
                typer.echo(err=True)
                remark("Ctrl-D or /exit ends.")
                continue
            if line.strip():
                yield line

    def say(self, line: str) -> bool:
        """Send a message or obey a command; whether the conversation goes on."""
        if line.startswith("/") and not line.startswith("//"):
            return self._obey(line.strip())
        try:
            self._answer(line.removeprefix("/") if line.startswith("//") else line)
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            self._interrupted()
        except Exception as error:  # also the backend's own, such as too little memory
            if not self.interactive or isinstance(error, BrokenPipeError):
                raise
            errors.report(error, self.debug)
        return True

    def _obey(self, command: str) -> bool:
        if command == "/reset":
            self.conversation.reset()
            remark("A new conversation.")
        elif command == "/help":
            remark(_COMMANDS)
        elif command != "/exit":
            remark(f"There is no command {command.split()[0]}.\n{_COMMANDS}")
        return command != "/exit"

    def _answer(self, text: str) -> None:
        message = check_text("the message", self.read(text))
        with prints_aside():
            chunks = self.conversation.send(message, max_new_tokens=self.limit)
        self._show_notes()
        printed = False
        try:
            with closing(cast(Any, chunks)):
                for chunk in each_aside(chunks):
                    write(chunk.text)
                    printed = True
        finally:
            if printed:
                write("\n")

    def _interrupted(self) -> None:
        result = self.conversation.last_result
        kept = result is not None and result.token_ids
        remark("[interrupted]" if kept else "[interrupted; the message was withdrawn]")

    def _show_notes(self) -> None:
        for note in self.conversation.notes[self.num_notes :]:
            remark(f"Note: {note}.")
        self.num_notes = len(self.conversation.notes)


def _ask(prompt: str) -> str:
    """One line from the terminal. Where the answers go elsewhere, the prompt does not follow."""
    if is_terminal(sys.stdout):
        return input(prompt)
    typer.echo(prompt, nl=False, err=True)
    return input()
