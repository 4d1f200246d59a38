"""What holds for every command: help, usage, plugins, how a call ends."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from genkit import __version__
from genkit.cli import main
from genkit.errors import GenkitError, UnknownNameError

COMMANDS = [
    ["generate"],
    ["chat"],
    ["score"],
    ["verify"],
    ["parts"],
    ["recipes", "list"],
    ["recipes", "show"],
    ["recipes", "check"],
    ["recipes", "schema"],
    ["plugins", "list"],
    ["doctor"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(genkit: Any, command: list[str]) -> None:
    done = genkit(*command, "--help")
    assert done.status == 0
    assert f"Usage: genkit {' '.join(command)}" in done.out
    assert "Example" in done.out
    assert f"  genkit {' '.join(command)}" in done.out.split("Example")[1]
    assert "--debug" in done.out
    assert "--plugin" in done.out
    assert done.err == ""


def test_help_lists_commands_and_those_of_plugins(genkit: Any) -> None:
    done = genkit("--help")
    assert done.status == 0
    for name in ("generate", "chat", "score", "verify", "parts", "recipes", "plugins", "doctor"):
        assert f"\n  {name} " in done.out
    assert "\n  hello     Say hello." in done.out


def test_a_plugin_can_bring_a_command_but_not_take_one_of_ours(genkit: Any) -> None:
    done = genkit("hello", "--name", "there")
    assert (done.status, done.out) == (0, "hello there\n")
    assert "the command 'generate' of plugin " in done.err
    assert " is left out: genkit has one of this name" in done.err


def test_our_commands_do_not_depend_on_commands_of_plugins(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "unmakeable.py"
    file.write_text(
        "from genkit.plugins import hookimpl\n"
        "@hookimpl\n"
        "def genkit_register_commands(app):\n"
        "    @app.command()\n"
        "    def good(): print('good')\n"
        "    @app.command()\n"
        "    def bad(x: 'Nowhere'): pass\n"
    )
    done = genkit("--plugin", file, "--help")
    assert done.status == 0
    assert "  good" in done.out
    assert "warning: the command 'bad' of plugin 'unmakeable' (" in done.err
    assert "warning" not in genkit("--plugin", file, "parts").err


def test_version(genkit: Any) -> None:
    done = genkit("--version")
    assert (done.status, done.out) == (0, f"genkit {__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"], ["recipes", "nonsense"]])
def test_wrong_usage(genkit: Any, arguments: list[str]) -> None:
    done = genkit(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "Usage: genkit" in done.err


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from genkit.cli import main; status = main(['--help']); "
        "heavy = {'torch', 'transformers', 'numpy', 'pydantic', 'yaml', 'rich'} & set(sys.modules);"
        "sys.exit(status or (f'imported: {heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_words_that_a_command_of_a_plugin_ends_with_are_shown(
    genkit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genkit.kit.Kit.__init__", _Broken(SystemExit("last words")))
    done = genkit("parts")
    assert (done.status, done.out, done.err) == (1, "", "last words\n")


def test_what_a_module_of_a_part_prints_is_no_result(genkit: Any, tmp_path: Path) -> None:
    (tmp_path / "loud_part.py").write_text(
        "from typing import Literal\n"
        "from genkit.components.base import LogitsProcessor\n"
        "print('LOUD')\n"
        "class Loud(LogitsProcessor):\n"
        "    'Is loud.'\n"
        "    type: Literal['loud'] = 'loud'\n"
    )
    file = tmp_path / "loud.py"
    file.write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from genkit.plugins import hookimpl, lazy\n"
        "@hookimpl\n"
        "def genkit_register_logits_processors():\n"
        "    return [lazy('loud', 'loud_part:Loud', 'Is loud.')]\n"
    )
    for words in (["parts", "--json"], ["recipes", "schema"]):
        sys.modules.pop("loud_part", None)
        done = genkit("--plugin", file, *words)
        assert done.json and "LOUD" in done.err, words


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "-r", "scripted.yaml", "hi"),
        ("generate", "-r", "scripted.yaml", "hi", "--json"),
        ("chat", "-r", "scripted.yaml"),
        ("score", "-r", "tiny.yaml", "hi", "--json"),
        ("verify", "tiny.yaml", "--cases", 1, "--json"),
    ],
    ids=lambda words: words[0],
)
def test_what_a_part_prints_in_a_run_is_no_result(
    genkit: Any, scripted: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, words: Any
) -> None:
    monkeypatch.chdir(scripted.parent)
    done = genkit(*words, "--set", "backend.prints=LOUD", stdin="hi\n")
    assert done.status == 0 and "LOUD\n" in done.err
    assert done.json if "--json" in words else done.out == "Hello.\n"


def test_parts_list_imports_no_part() -> None:
    program = (
        "import sys; from genkit.cli import main; status = main(['parts']); "
        "sys.exit(status or int('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "repetition_penalty" in done.stdout


class _Broken:
    """What a command can run into."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *arguments: object, **options: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (GenkitError("the cause"), 1, "error: the cause\n"),
        (UnknownNameError("sampler", "x", []), 1, "no sampler named 'x'"),
        (RuntimeError("CUDA out of memory.\nTried 2 GiB"), 1, "out of memory. Tried 2 GiB"),
        (FileNotFoundError(2, "No such file", "a.txt"), 1, "error: a.txt: No such file\n"),
        (PermissionError(13, "Permission denied", "a.txt"), 1, "a.txt: Permission denied"),
        (EOFError(), 1, "error: EOFError"),
        (AssertionError(), 1, "error: AssertionError\n  --debug shows where\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_end_a_command_readably(
    genkit: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, words: str
) -> None:
    monkeypatch.setattr("genkit.kit.Kit.__init__", _Broken(error))
    done = genkit("parts")
    assert (done.status, done.out) == (status, "")
    assert words in done.err
    assert "Traceback" not in done.err
    if status == 1:
        assert "Traceback" in genkit("--debug", "parts").err


def test_notes_of_an_error_are_shown(genkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    error = GenkitError("the cause")
    error.add_note("recipe.yaml:3: backend")
    monkeypatch.setattr("genkit.kit.Kit.__init__", _Broken(error))
    assert genkit("parts").err == "error: the cause\n  recipe.yaml:3: backend\n"


def test_a_given_plugin_that_is_broken_is_an_error(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import nothing_of_this_name\n")
    for arguments in (["--plugin", file, "parts"], ["parts", "--plugin", file]):
        done = genkit(*arguments)
        assert (done.status, done.out) == (1, "")
        assert "nothing_of_this_name" in done.err
    assert "no plugin file" in genkit("parts", "--plugin", tmp_path / "missing.py").err


def test_main_takes_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["genkit", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == f"genkit {__version__}\n"


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        (["parts"], ">&-"),
        (["parts"], "<&- 2>&-"),
        (["generate", "-r", "{}", "hi"], ">&-"),
        (["generate", "-r", "{}", "hi"], "<&- >&- 2>&-"),
    ],
)
def test_a_process_may_lack_a_stream(
    command: Any, plugin: Path, scripted: Path, words: list[str], closed: str
) -> None:
    arguments = [word.format(scripted) for word in words]
    line = f"{shlex.join(command('--plugin', plugin, *arguments))} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert not {"Traceback", "error", "AttributeError"} & set(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["generate", "-"], 1, "error: standard input is closed\n"),
        (["generate"], 2, "give the prompt, or pipe it in"),
        (["chat"], 1, "error: standard input is closed\n"),
    ],
)
def test_text_is_not_read_from_a_closed_standard_input(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    plugin: Path,
    scripted: Path,
    words: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["--plugin", str(plugin), *words, "-r", str(scripted)]) == status
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_output_that_cannot_be_written_is_an_error(command: Any) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("parts"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_ctrl_c_while_the_app_is_imported_ends_quietly() -> None:
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "from genkit.cli import main\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.exit(main(['parts']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n")


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_seed_that_is_too_large_is_wrong_usage(genkit: Any, command: str, scripted: Path) -> None:
    done = genkit(command, "-r", scripted, "--seed", 2**64, stdin="hi")
    assert (done.status, done.out) == (2, "")
    assert "loading" not in done.err
    done = genkit(command, "-r", scripted, "--seed", 2**64 - 1, stdin="hi")
    assert (done.status, done.out) == (0, "Hello.\n")
