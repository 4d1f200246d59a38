from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from genkit.cli import main

PLUGIN = '''
import time
from typing import Literal

from genkit.backends.base import Backend
from genkit.plugins import hookimpl


class Tiny(Backend):
    """A small random transformer over bytes."""

    type: Literal["tiny"] = "tiny"
    add_bos: bool = False
    eos: bool = False
    weights: int = 0
    rounds: bool = False
    prints: str = ""

    def load(self, *, models=None, progress=None):
        from genkit.testing import ByteTokenizer, TinyModel

        spec = self

        class Model(TinyModel):
            def last(self, input_ids, cache, n):
                spec.prints and print(spec.prints)
                return super().last(input_ids, cache, n)

        progress and progress("loading the tiny model")
        ends = [ByteTokenizer.eos_token_id, ByteTokenizer.turn_end_id] if self.eos else []
        tokenizer = ByteTokenizer(self.add_bos)
        model = Model(self.weights, eos_token_ids=ends, tokenizer=tokenizer)
        model.rounds = self.rounds
        return model


class Scripted(Backend):
    """Says one thing, whatever it is asked."""

    type: Literal["scripted"] = "scripted"
    text: str = "Hello."
    seconds: float = 0.0
    interrupt_at: int | None = None
    fail_at: int | None = None
    prints: str = ""

    def load(self, *, models=None, progress=None):
        from genkit.testing import ByteTokenizer, ScriptedModel

        spec = self

        class Model(ScriptedModel):
            def last(self, input_ids, cache, n):
                time.sleep(spec.seconds)
                spec.prints and print(spec.prints)
                step = cache.length + input_ids.shape[1] - cache.prompt_end
                if step == spec.interrupt_at:
                    raise KeyboardInterrupt
                if step == spec.fail_at:
                    raise RuntimeError("DefaultCPUAllocator: out of\\nmemory")
                return super().last(input_ids, cache, n)

        progress and progress("loading the scripted model")
        ids = [*self.text.encode(), ByteTokenizer.turn_end_id]
        return Model.of_ids(
            ids, ByteTokenizer.vocab_size, eos_token_ids=[ids[-1]], tokenizer=ByteTokenizer()
        )


@hookimpl
def genkit_register_backends():
    return [Tiny, Scripted]


@hookimpl
def genkit_register_commands(app):
    @app.command(short_help="Say hello.")
    def hello(name: str = "you"):
        print(f"hello {name}")

    @app.command()
    def generate():
        print("not ours")
'''

TINY = """
version: 1
backend: {type: tiny}
context: {type: chat, system: Brief.}
processors:
  - {type: temperature, temperature: 0.9}
sampler: {type: categorical}
stop_criteria:
  - {type: eos}
  - {type: max_new_tokens, limit: 8}
"""

SCRIPTED = """
version: 1
backend: {type: scripted}
context: {type: chat}
stop_criteria:
  - {type: eos}
  - {type: max_new_tokens, limit: 60}
"""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Genkit = Callable[..., Outcome]


class _Input(io.TextIOWrapper):
    """Standard input that is a pipe, or pretends to be a terminal."""

    def __init__(self, data: bytes, terminal: bool) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GENKIT_DISABLE_PLUGINS", raising=False)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A single-file plugin with two backends, `tiny` and `scripted`, and two commands."""
    path = tmp_path / "models.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    path = tmp_path / "scripted.yaml"
    path.write_text(SCRIPTED)
    return path


@pytest.fixture
def genkit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plugin: Path
) -> Genkit:
    """Run a command in this process, with the plugin; gives status, output and errors."""

    def run(*arguments: object, stdin: str | bytes = "", terminal: bool = False) -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", _Input(data, terminal))
        capsys.readouterr()
        status = main(["--plugin", str(plugin), *map(str, arguments)])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def command() -> Callable[..., list[str]]:
    """The words that start a real process."""

    def words(*arguments: object) -> list[str]:
        program = "import sys; from genkit.cli import main; sys.exit(main())"
        return [sys.executable, "-c", program, *map(str, arguments)]

    return words


@pytest.fixture
def process(command: Callable[..., list[str]]) -> Genkit:
    """Run a command in a process of its own. It takes seconds: one test a command."""

    def run(*arguments: object, stdin: str = "") -> Outcome:
        done = subprocess.run(
            command(*arguments), input=stdin, capture_output=True, text=True, timeout=120
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """The models are so small that a second thread only waits for the first."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
