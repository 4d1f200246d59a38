"""Pages with code blocks, told as stories: the blocks of one run in order, in an empty folder.

- ``python``: executed, all of a page in one namespace.
- ``shell``: lines that begin with `genkit` go through the command's entry function and must
  succeed, or end as a comment says, ``# ends with 1``; a package of the page's own is installed and
  its tests are run; of scripts it is checked that they exist and know their arguments.
- ``text`` after one of these: what it prints, where ``...`` stands for anything. With
  ``title="measured"``, numbers with a point, a bare 0 and names of runs may be others.
- ``yaml``: a recipe, or sections of one; with ``title="FILE"`` it is written, for later blocks.
- any other block with ``title="FILE"``: written to that file; it has to be what its name says.
- ``console``: for what must not run here, as what needs the network. Of lines that begin with
  `genkit` it is checked that the command has these arguments and options.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parent.parent
RUN = {"python", "shell"}
READ = {"yaml"}
SHOWN = {"console", "json", "text", "toml"}
BLOCK = re.compile(
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<attributes>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
MEASURED = re.compile(r"\b[0-9a-f]{8}\b|\d+\.\d+(e-\d+)?|\d+e-\d+|(?<!\S)0(?!\S)")
ENDS_WITH = re.compile(r"# ends with (\d+)$")


READERS: dict[str, Callable[[str], Any]] = {
    "python": ast.parse,
    "json": json.loads,
    "toml": tomllib.loads,
}


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    title: str | None
    code: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    blocks = []
    for match in BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', match["attributes"])
        blocks.append(
            Block(
                language=match["language"],
                title=title and title[1],
                code=textwrap.dedent(match["code"]),
                line=text.count("\n", 0, match.start("code")) + 1,
            )
        )
    return blocks


def tell(text: str, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs the blocks of a page in the current folder.

    Args:
        text: of the page.
        page: its path, for messages.
        capsys: what the blocks print is taken from it.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    ran: Block | None = None
    printed: tuple[str, ...] = ()
    blocks = blocks_of(text)
    for place, block in enumerate(blocks):
        match block.language, block.title:
            case "python", None:
                run_python(block, page, namespace)
            case "shell", _:
                run_shell(block)
            case "text", title:
                if ran is not None and ran.language in RUN:
                    compare(block, printed, measured=title == "measured")
            case "yaml", None:
                read_yaml(block)
            case "console", None:
                read_console(block)
            case language, str(title):
                READERS.get(language, str)(block.code)
                Path(title).write_text(block.code, encoding="utf-8")
                if language == "yaml":
                    later = (b.code for b in blocks[place + 1 :] if b.language in RUN | READ)
                    assert title in "".join(later), f"line {block.line}: nobody reads {title}"
            case language, None if language in READERS:
                READERS[language](block.code)
        if block.language != "text":
            ran, printed = block, capsys.readouterr()


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> None:
    """Executes a block; a traceback names the line of the page."""
    source = "\n" * (block.line - 1) + block.code
    exec(compile(source, str(page), "exec", dont_inherit=True), namespace)


def run_shell(block: Block) -> None:
    """Runs each line: `NAME=value`, `OTHER COMMAND |`, `< FILE` and `> FILE` are understood.

    Standard input is empty where neither of these fills it.
    """
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        read = b""
        if "|" in words:
            bar = words.index("|")
            read = subprocess.run(words[:bar], check=True, capture_output=True).stdout
            words = words[bar + 1 :]
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            while "=" in words[0]:
                patch.setenv(*words.pop(0).split("=", 1))
            if words[-2:-1] == ["<"]:
                read = Path(words[-1]).read_bytes()
                words = words[:-2]
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(read), encoding="utf-8"))
            if words[-2:-1] == [">"]:
                file = stack.enter_context(Path(words[-1]).open("w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(file))
                words = words[:-2]
            run_words(words, line)


def run_words(words: list[str], line: str) -> None:
    """Runs one command."""
    from genkit.cli import main

    if words[0] == "genkit":
        forget_modules_of(Path.cwd())  # a command is a process of its own
        said = ENDS_WITH.search(line)
        assert main(words[1:]) == (int(said[1]) if said else 0), line
    elif words[0].startswith("scripts/"):
        read_script(words)
    elif words[:3] == ["pip", "install", "--editable"]:
        install(Path(words[3].partition("[")[0]))
    elif words[0] == "pytest":
        tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words[1:]]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(tests, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        pytest.fail(f"{line!r} cannot be run here; mark its block `console`")


def forget_modules_of(folder: Path) -> None:
    """Has what was imported from a page's folder read anew; nothing where that is the clone."""
    if folder in (ROOT, *ROOT.parents):
        return
    for name, module in list(sys.modules.items()):
        if folder in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]


def install(package: Path) -> None:
    """Installs a package that the page has made, for this page alone: in a folder beside it."""
    site = Path("site-packages").resolve()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)]
    done = subprocess.run([*pip, str(package.resolve())], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()


def read_console(block: Block) -> None:
    """Checks the arguments and options of lines that begin with `genkit`."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["genkit"]:
            parse(words)


def parse(words: Iterable[str]) -> None:
    """Reads a command line as `genkit` does, and runs nothing; it raises if a word is not known."""
    command, context, rest = find(words)
    command.make_context(rest[0], rest[1:], parent=context)


def read_mention(words: Iterable[str]) -> None:
    """Checks a command that a sentence mentions: it and its options exist, all else may be open."""
    import typer

    command, _, rest = find(words)
    known = {name for each in command.get_params(typer.Context(command)) for name in each.opts}
    unknown = {word for word in rest[1:] if word.startswith("-")} - known
    assert not unknown, f"{command.name} has no {', '.join(sorted(unknown))}"


def find(words: Iterable[str]) -> tuple[Any, Any, list[str]]:
    """The command that a line calls, the context of the group it is in, and the words from it on.

    A group is the command where none of its own follows.
    """
    import typer

    from genkit.cli.app import app
    from genkit.cli.settings import Settings

    command: Any = typer.main.get_command(app)
    context: Any = None
    rest = list(words)
    while hasattr(command, "commands") and rest[1:] and not rest[1].startswith("-"):
        context = command.make_context(
            rest.pop(0), [], parent=context, obj=Settings(), resilient_parsing=True
        )
        assert rest[0] in command.commands, f"{command.name} has no command {rest[0]!r}"
        command = command.commands[rest[0]]
    return command, context, rest


def read_script(words: Iterable[str]) -> None:
    """Checks that a script exists and knows its arguments; pytest reads those of `scripts/test`."""
    script, *rest = words
    assert os.access(ROOT / script, os.X_OK), script
    if script == "scripts/test":
        options = [word for word in rest if word != "--all"]
        paths = [word for word in rest if re.match(r"[\w.]+[/.]\w", word)]
        assert all((ROOT / path).exists() for path in paths), paths
        read = [sys.executable, "-m", "pytest", "--markers", *options]  # the quickest that reads
        done = subprocess.run(read, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        sources = [ROOT / script, *ROOT.glob(f"{script}.py")]
        known = " ".join(source.read_text(encoding="utf-8") for source in sources)
        unknown = [word for word in rest if not re.search(rf"(?<![-\w]){word}(?![-\w])", known)]
        assert not unknown, f"{script} knows nothing of {', '.join(unknown)}"


def compare(block: Block, printed: Iterable[str], measured: bool = False) -> None:
    """Holds a block to what was printed: spaces and line ends are equal, `...` is anything.

    Args:
        block: what is shown.
        printed: what the standard streams got; one of them has to be it.
        measured: whether numbers with a point, a bare 0 and names of runs may be others.
    """
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    texts = [block.code, *printed]
    wanted, *found = [MEASURED.sub("0.0", text) for text in texts] if measured else texts
    if not any(doctest.OutputChecker().check_output(wanted, text, flags) for text in found):
        streams = "\n".join(found)
        pytest.fail(f"line {block.line}: it prints\n{streams}\nand not\n{wanted}")


def read_yaml(block: Block) -> None:
    """Checks sections of a recipe; what a recipe needs besides is filled in."""
    problems = problems_of(yaml.safe_load(block.code))
    assert not problems, f"line {block.line}: {problems}"


def problems_of(sections: dict[str, object]) -> list[str]:
    """What is wrong with a recipe that has these sections and else the least."""
    from genkit import load_recipe
    from genkit.errors import RecipeError

    recipe = {"version": 1, "backend": {"type": "pytorch", "model": "smollm2"}, **sections}
    try:
        load_recipe(recipe)
    except RecipeError as error:
        return [str(problem) for problem in error.problems]
    return []
