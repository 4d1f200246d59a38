from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genkit.scaffold import Package
from genkit.testing.laws.processor import PROCESSOR_LAWS

# What somebody has written who has read nothing but the tutorial.
CALM = """\
from typing import Literal

from pydantic import Field

from genkit.components.base import LogitsProcessor
from genkit.plugins import hookimpl


class Calm(LogitsProcessor):
    '''Halves what is above a number.'''

    type: Literal["calm"] = "calm"
    above: float = Field(1.0, description="what is left as it is")

    def __call__(self, state, logits):
        return logits.where(logits <= self.above, self.above + (logits - self.above) / 2)


@hookimpl
def genkit_register_logits_processors():
    return [Calm]
"""

UNPROMISED = {
    "keeps the argmax it promises": "not promised: it has no `keeps_argmax`",
    "gives the same to allowed tokens alone": "not promised: it has no `acts_on_allowed`",
    "rewinds": "not promised: it has no `rewind`",
}

HALVED = "return logits.where(logits <= self.above, self.above + (logits - self.above) / 2)"


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    return write(tmp_path, "calm", CALM)


@pytest.fixture(autouse=True)
def _modules_and_paths() -> Iterator[None]:
    """What a check has imported from a folder is gone afterwards."""
    modules, paths = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in {"genkit_calm", "genkit_other"}:
            del sys.modules[name]
    sys.path[:] = paths


def write(folder: Path, name: str, source: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(source)
    return path


def holds(done: Any) -> dict[str, bool | None]:
    return {law["name"]: law["holds"] for law in done.json["laws"]}


def broken(done: Any) -> dict[str, str]:
    return {law["name"]: law["detail"] for law in done.json["laws"] if law["holds"] is False}


def check(genkit: Any, target: object, *arguments: object) -> Any:
    return genkit("plugins", "check", target, "--cases", 5, *arguments)


# --- what is found out about parts ---


def test_25_lines_pass(genkit: Any, calm: Path) -> None:
    assert len(CALM.splitlines()) <= 25
    done = check(genkit, calm)
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    for law in PROCESSOR_LAWS:
        verdict = "-" if law.name in UNPROMISED else "yes"
        assert any(law.name in " ".join(line) and verdict in line for line in lines), law
    last = f"plugin 'calm' ({calm}): 18 hold, 0 are broken, 3 do not apply"
    assert done.out.splitlines()[-1] == last


def test_json(genkit: Any, calm: Path) -> None:
    done = check(genkit, calm, "--json")
    assert (done.status, done.json["plugin"], done.json["holds"]) == (0, "calm", True)
    promised = {law.name: None if law.name in UNPROMISED else True for law in PROCESSOR_LAWS}
    assert holds(done) == promised
    assert {law["part"] for law in done.json["laws"]} == {"logits processor calm"}


def test_what_is_not_promised_is_told_from_what_holds(genkit: Any, calm: Path) -> None:
    done = check(genkit, calm, "--json")
    assert {law["name"]: law["detail"] for law in done.json["laws"] if law["detail"]} == UNPROMISED
    kept = CALM.replace("    above:", "    keeps_argmax = True\n    may_empty = True\n    above:")
    done = check(genkit, write(calm.parent, "calm", kept), "--json")
    assert holds(done)["keeps the argmax it promises"] is True
    assert holds(done)["empties no row"] is None


def test_each_broken_law_has_its_own_counter_example(genkit: Any, tmp_path: Path) -> None:
    both = CALM.replace(HALVED, "logits[:, 0] = -1e9\n        return logits")
    done = check(genkit, write(tmp_path, "calm", both), "--json")
    assert done.status == 1
    found = broken(done)
    assert "wrote into the logits" in found["leaves what it is given"]
    assert "finite floor" in found["forbids with minus infinity"]
    assert holds(done)["keeps shape dtype and device"] is True
    text = check(genkit, tmp_path / "calm.py")
    assert text.status == 1
    assert "BROKEN: leaves what it is given, logits processor calm\n" in text.out
    assert found["leaves what it is given"] in text.out


def test_a_part_that_raises_breaks_laws_and_is_no_traceback(genkit: Any, tmp_path: Path) -> None:
    raising = CALM.replace(HALVED, "raise ValueError('no')")
    done = check(genkit, write(tmp_path, "calm", raising))
    assert (done.status, done.err) == (1, "laws of logits processor calm\n")
    assert "BROKEN: runs without an error, logits processor calm\n" in done.out
    assert done.out.count("step 0: raised ValueError: no") == 1
    assert "  (17 more of its laws are broken in the same way)\n" in done.out


NEEDY = CALM.replace('Field(1.0, description="what is left as it is")', "Field(gt=0)")


def test_an_option_that_is_needed_can_be_given(genkit: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "calm", NEEDY)
    done = check(genkit, path)
    assert done.status == 1
    assert "above: this option is required; give it with --set calm.above=VALUE" in done.out
    given = check(genkit, path, "--set", "calm.above=0.5", "--json")
    assert given.status == 0
    assert {law["part"] for law in given.json["laws"]} == {"logits processor calm (above: 0.5)"}
    wrong = check(genkit, path, "--set", "calm.above=-1")
    assert wrong.status == 1 and "greater than 0" in wrong.out


def test_an_option_that_is_needed_is_taken_from_its_examples(genkit: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "calm", NEEDY.replace("gt=0", "gt=0, examples=[0.25]"))
    done = check(genkit, path, "--json")
    assert done.status == 0
    assert {law["part"] for law in done.json["laws"]} == {"logits processor calm (above: 0.25)"}


def test_options_are_of_parts_that_there_are(genkit: Any, calm: Path) -> None:
    done = check(genkit, calm, "--set", "cal.above=2")
    assert done.status == 1
    assert "--set cal.above=2" in done.err and "did you mean 'calm'?" in done.err


def test_a_class_that_cannot_be_imported(genkit: Any, tmp_path: Path) -> None:
    source = """
from genkit.plugins import hookimpl, lazy

@hookimpl
def genkit_register_samplers():
    return [lazy("lost", "nowhere.at.all:Lost")]
"""
    done = check(genkit, write(tmp_path, "lost", source), "--json")
    assert done.status == 1
    assert "No module named 'nowhere'" in broken(done)["can be used"]


def test_a_law_that_not_every_sampler_keeps_is_not_broken(genkit: Any, tmp_path: Path) -> None:
    source = """
from typing import Literal
from genkit.components.samplers import Greedy
from genkit.plugins import hookimpl

class Best(Greedy):
    type: Literal["best"] = "best"

@hookimpl
def genkit_register_samplers():
    return [Best]
"""
    done = check(genkit, write(tmp_path, "best", source), "--json")
    assert done.status == 0
    [law] = [law for law in done.json["laws"] if law["name"] == "draws by probability"]
    assert law["holds"] is None and "not promised: step 0: of 2000 draws" in law["detail"]


def test_a_criterion_that_goes_by_the_clock_is_not_tried(genkit: Any, tmp_path: Path) -> None:
    source = """
from typing import Literal
from genkit.components.stopping import TimeLimit
from genkit.plugins import hookimpl

class Soon(TimeLimit):
    type: Literal["soon"] = "soon"

@hookimpl
def genkit_register_stop_criteria():
    return [Soon]
"""
    done = check(genkit, write(tmp_path, "soon", source), "--set", "soon.seconds=1", "--json")
    assert done.status == 0
    assert set(holds(done).values()) == {None}


CONTEXT = """
from typing import Literal
from genkit.components.contexts import Chat
from genkit.plugins import hookimpl

class Talk(Chat):
    type: Literal["talk"] = "talk"

    def encode(self, prompt, tokenizer):
        return tokenizer.encode_chat(self.messages(prompt))[:%s]

@hookimpl
def genkit_register_contexts():
    return [Talk]
"""


@pytest.mark.parametrize(("end", "status"), [("None", 0), ("0", 1)])
def test_contexts(genkit: Any, tmp_path: Path, end: str, status: int) -> None:
    done = check(genkit, write(tmp_path, "talk", CONTEXT % end), "--json")
    assert done.status == status
    if status:
        assert broken(done) == {"encodes to ids": "'abc de' became []"}
        assert holds(done)["keeps what fits"] is None
    else:
        assert set(holds(done).values()) == {True} and len(done.json["laws"]) == 6


def test_laws_of_a_context_that_come_after_a_broken_one_are_tried(
    genkit: Any, tmp_path: Path
) -> None:
    forgetful = CONTEXT.replace("    def encode", "    count: int = 0\n\n    def encode").replace(
        "        return", "        self.__dict__['count'] += 1\n        return [self.count] +"
    )
    done = check(genkit, write(tmp_path, "talk", forgetful % "None"), "--json")
    assert set(broken(done)) == {"gives the same again", "leaves its spec"}
    assert [name for name, held in holds(done).items() if held is None] == []


def test_a_summary_that_is_not_the_docstrings_is_shown_and_breaks_nothing(
    genkit: Any, tmp_path: Path
) -> None:
    folder = Package("calm", "sampler").write(tmp_path)
    file = folder / "src/genkit_calm/calm.py"
    file.write_text(file.read_text().replace('"""Draws', '"""Calmly draws', 1))
    done = check(genkit, folder, "--json")
    assert (done.status, holds(done)["is described alike"]) == (0, None)
    (row,) = (law for law in done.json["laws"] if law["name"] == "is described alike")
    assert "and the docstring 'Calmly draws" in row["detail"]


def test_a_context_that_takes_messages_only(genkit: Any, tmp_path: Path) -> None:
    strict = CONTEXT.replace(
        "        return",
        "        if isinstance(prompt, str):\n"
        "            raise __import__('genkit').errors.InputError('messages only')\n"
        "        return",
    )
    done = check(genkit, write(tmp_path, "talk", strict % "None"), "--json")
    assert (done.status, broken(done)) == (0, {})


@pytest.mark.parametrize(
    ("body", "law"),
    [
        ("pass", None),
        ("raise ValueError('tired')", "runs without an error"),
        ("step.raw_logits.data.zero_()", "changes nothing"),
    ],
)
def test_observers(genkit: Any, tmp_path: Path, body: str, law: str | None) -> None:
    source = f"""
from genkit.plugins import hookimpl

@hookimpl
def genkit_step(run, step):
    {body}
"""
    done = check(genkit, write(tmp_path, "watch", source), "--json")
    assert done.status == (law is not None)
    assert list(broken(done)) == ([law] if law else [])
    assert {law["part"] for law in done.json["laws"]} == {"observer"}


CACHE = """
from typing import ClassVar, Literal
from genkit.components.caches import Dynamic
from genkit.plugins import hookimpl

class Kept(Dynamic):
    type: Literal["kept"] = "kept"
    requires: ClassVar = frozenset({%s})

@hookimpl
def genkit_register_cache_managers():
    return [Kept]
"""


def test_a_manager_that_serves_no_small_model_cannot_be_tried(genkit: Any, tmp_path: Path) -> None:
    done = check(genkit, write(tmp_path, "kept", CACHE % "'magic'"), "--json")
    assert done.status == 1
    assert "magic" in broken(done)["can be used"]


def test_recipes_are_read(genkit: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "calming.yaml"
    source = f"""
from genkit.plugins import hookimpl

@hookimpl
def genkit_register_recipes():
    return [{str(recipe)!r}]
"""
    recipe.write_text("version: 1\nbackend: {type: tiny}\n")
    good = check(genkit, write(tmp_path, "cook", source))
    assert good.status == 0 and "can be read" in good.out
    recipe.write_text("version: 1\nbackend: {type: huge}\n")
    bad = check(genkit, tmp_path / "cook.py")
    assert bad.status == 1 and "huge" in bad.out


MODELS = """
from genkit.plugins import hookimpl

@hookimpl
def genkit_register_models():
    return {"here": %s}
"""


@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        ("'some/where'", {"names a place": True}),
        ("'./nowhere'", {"names a place": False}),
        ("lambda: 1 / 0", {"names a place": None}),
        (
            "{'model': 'some/where', 'dtype': 'float32'}",
            {"names a place": True, "has options of a backend": True},
        ),
        (
            "{'model': 'some/where', 1: 2}",
            {"names a place": True, "has options of a backend": False},
        ),
        (
            "{'model': 'some/where', 'dtipe': 'float32'}",
            {"names a place": True, "has options of a backend": False},
        ),
    ],
)
def test_models_are_where_they_are_said_to_be(
    genkit: Any, tmp_path: Path, source: str, verdicts: dict[str, bool | None]
) -> None:
    done = check(genkit, write(tmp_path, "models_only", MODELS % source), "--json")
    assert holds(done) == verdicts
    assert {law["part"] for law in done.json["laws"]} == {"model here"}
    assert done.status == (False in verdicts.values())


def test_a_plugin_that_brings_nothing(genkit: Any, tmp_path: Path) -> None:
    done = check(genkit, write(tmp_path, "models_only", MODELS.replace('{"here": %s}', "{}")))
    assert done.status == 0
    assert done.out.endswith("is loaded and brings nothing to check\n")


COMMANDS = """
import typer
from genkit.plugins import hookimpl

@hookimpl
def genkit_register_commands(app):
    %s

    @app.command()
    def hello(name: %s = "you"):
        print("hello")

    group = typer.Typer()
    group.command("first")(hello)
    group.command("second")(hello)
    app.add_typer(group, name="%s")
"""


@pytest.mark.parametrize(
    ("filled", "found"),
    [
        (("pass", "str", "greet"), {}),
        (("pass", "str", "verify"), {"command verify": ["has a free name"]}),
        (
            ("pass", "dict[str, int]", "greet"),
            {"command hello": ["answers --help"], "command greet": ["answers --help"]},
        ),
        (
            ("app.command('run', add_help_option=False)(lambda: 1 / 0)", "str", "greet"),
            {"command run": ["answers --help"]},
        ),
        (
            ("app.command('hello')(lambda: 0)", "str", "greet"),
            {"command hello": ["has a free name"]},
        ),
        (("1 / 0", "str", "greet"), {"commands": ["can be added"]}),
    ],
)
def test_commands(
    genkit: Any, tmp_path: Path, filled: tuple[str, ...], found: dict[str, list[str]]
) -> None:
    done = check(genkit, write(tmp_path, "greet", COMMANDS % filled), "--json")
    laws = [law for law in done.json["laws"] if law["holds"] is False]
    assert {law["part"]: [law["name"]] for law in laws} == found
    assert done.status == bool(found)
    assert found or {law["part"] for law in done.json["laws"]} == {"command hello", "command greet"}


def test_a_command_whose_help_ends_badly(genkit: Any, tmp_path: Path) -> None:
    odd = "type('Odd', (typer.core.TyperCommand,), {'get_help': 1})"
    leaves = f"app.command('odd', cls={odd})(lambda: 0)"
    done = check(genkit, write(tmp_path, "odd", COMMANDS % (leaves, "str", "greet")), "--json")
    assert done.status == 1
    [(law, detail)] = broken(done).items()
    assert law == "answers --help" and "`genkit odd --help` raised TypeError" in detail


EXPORTER = """
from typing import Literal

from genkit.errors import UnsupportedError
from genkit.exporters import Exporter
from genkit.plugins import hookimpl

class Table(Exporter):
    '''Writes a table.'''

    type: Literal["table"] = "table"

    def check_ready(self):
        %s

    def write(self, source, out, progress):
        %s

@hookimpl
def genkit_register_exporters():
    return [Table]
"""
REFUSES = "raise UnsupportedError('no table')"


@pytest.mark.parametrize(
    ("ready", "write_body", "found"),
    [
        ("pass", REFUSES, []),
        ("pass", "pass", ["refuses a broken model"]),
        ("pass", "1 / 0", ["refuses a broken model"]),
        ("pass", f"(source / 'x').touch(); {REFUSES}", ["leaves the model"]),
        ("pass", f"(source / 'x').mkdir(); {REFUSES}", ["leaves the model"]),
        ("import nothing_of_this_name", "1 / 0", ["says what is lacking"]),
        (REFUSES, "1 / 0", []),
    ],
)
def test_exporters(
    genkit: Any, tmp_path: Path, ready: str, write_body: str, found: list[str]
) -> None:
    done = check(genkit, write(tmp_path, "table", EXPORTER % (ready, write_body)), "--json")
    assert list(broken(done)) == found
    assert done.status == bool(found)
    is_tried = holds(done)["leaves the model"] is not None
    assert is_tried == (ready == "pass")


def test_an_exporter_describes_its_options(genkit: Any, tmp_path: Path) -> None:
    source = EXPORTER.replace('= "table"\n', '= "table"\n    width: int = 1\n')
    done = check(genkit, write(tmp_path, "table", source % ("pass", REFUSES)), "--json")
    detail = "there is no description of its option `width`"
    assert broken(done) == {"is described": detail}


NEEDS_TEXT = CALM.replace(
    "    def __call__",
    "    def bind(self, run):\n"
    "        %s\n"
    "        run.tokenizer.encode('a')\n"
    "        return self\n\n"
    "    def __call__",
)


def test_a_part_that_takes_a_tokenizer_for_granted_is_told_to_refuse(
    genkit: Any, tmp_path: Path
) -> None:
    done = check(genkit, write(tmp_path, "calm", NEEDS_TEXT % "pass"))
    assert done.status == 1
    assert "BROKEN: runs without an error, logits processor calm\n" in done.out
    assert "has no attribute 'encode' in `bind`; the law ran it without a tokenizer" in done.out
    assert "a part that needs one raises UnsupportedError in `bind`" in done.out
    refuses = "if run.tokenizer is None: raise __import__('genkit').errors.UnsupportedError('none')"
    assert check(genkit, write(tmp_path, "calm", NEEDS_TEXT % refuses)).status == 0


# --- which plugin is meant ---

HOOK = "from genkit.plugins import hookimpl\n@hookimpl\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of"),
        (CALM.replace("genkit_register_logits", "genkit_register_logit"), "there is no hook"),
        (CALM.replace('"calm"', '"top_k"'), "'top_k' is registered by plugin 'genkit'"),
        (f"{HOOK}async def genkit_step(run, step): ...", "genkit_step is an `async def`"),
        (f"{HOOK}def genkit_step(run, step): yield", "genkit_step is a generator function"),
        (f"{HOOK}def genkit_register_samplers(): yield", "it has a `yield`"),
    ],
)
def test_a_plugin_that_cannot_be_loaded(
    genkit: Any, tmp_path: Path, source: str, words: str
) -> None:
    done = check(genkit, write(tmp_path, "calm", source), "--json")
    assert (done.status, done.out) == (1, "")
    assert f"error: plugin 'calm' ({tmp_path / 'calm.py'}) cannot be loaded: " in done.err
    assert words in done.err


def test_names_and_files_that_there_are_not(genkit: Any, tmp_path: Path) -> None:
    done = check(genkit, "modells")
    assert done.status == 1
    assert "there is no plugin named 'modells', did you mean 'models'?" in done.err
    assert check(genkit, tmp_path / "none.py").status == 1
    assert genkit("plugins", "check").status == 2
    assert genkit("plugins", "check", "models", "--cases", "0").status == 2


def test_installed_plugins_by_name(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, CALM)
    for name in ("calm", "lm-genkit-calm", "lm_genkit_calm", "LM.Genkit-Calm"):
        done = check(genkit, name)
        assert done.status == 0
        assert "plugin 'calm' (lm-genkit-calm 1.0): 18 hold" in done.out
    monkeypatch.setenv("GENKIT_DISABLE_PLUGINS", "calm")
    done = check(genkit, "calm")
    assert done.status == 1
    assert "is not loaded: GENKIT_DISABLE_PLUGINS disables it" in done.err


def test_an_installed_plugin_that_is_broken(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, CALM.replace("@hookimpl", "@hookimplement"))
    [found] = [p for p in genkit("plugins", "list", "--json").json if p["name"] == "calm"]
    done = check(genkit, "calm")
    assert done.status == 1
    assert f"error: plugin 'calm' (lm-genkit-calm 1.0) is not loaded: {found['cause']}" in done.err


def test_what_an_installed_observer_raises_is_not_hidden(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from genkit.plugins import hookimpl\n\n\n@hookimpl\ndef genkit_step(run, step):\n"
    install(tmp_path, monkeypatch, f"{source}    raise RuntimeError('tired')\n")
    done = check(genkit, "calm", "--json")
    assert done.status == 1
    assert list(broken(done)) == ["runs without an error"]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install a plugin of one module, as pip would."""
    monkeypatch.syspath_prepend(str(folder))
    info = folder / "lm_genkit_calm-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lm-genkit-calm\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genkit]\ncalm = genkit_calm\n")
    write(folder, "genkit_calm", source)


def test_the_folder_of_a_package_need_not_be_installed(genkit: Any, tmp_path: Path) -> None:
    folder = Package("calm", "stop_criterion").write(tmp_path)
    done = check(genkit, folder, "--json")
    assert done.status == 0
    assert {law["part"] for law in done.json["laws"]} == {"stop criterion calm"}


def test_a_folder_is_not_mistaken_for_what_is_installed(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Package("calm", "stop_criterion").write(tmp_path / "work")
    install(tmp_path, monkeypatch, CALM)
    done = check(genkit, folder)
    assert done.status == 1
    assert "is installed from elsewhere" in done.err and str(folder) in done.err


def test_a_folder_that_is_installed_in_place(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Package("calm", "stop_criterion").write(tmp_path)
    install(folder / "src", monkeypatch, CALM)
    (folder / "src/genkit_calm.py").unlink()
    done = check(genkit, folder)
    assert done.status == 0
    assert "plugin 'calm' (lm-genkit-calm 1.0): 13 hold" in done.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('calm = "genkit_calm"', ""), "has none; one entry point"),
        (('calm = "genkit_calm"', 'calm = "genkit_calm"\nb = "b"'), "has 2: calm, b; one entry"),
        (("[project]", "[project"), "cannot be read"),
        (('"genkit_calm"\n', '"genkit_other"\n'), "No module named 'genkit_other'"),
    ],
)
def test_folders_that_are_no_plugin(
    genkit: Any, tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    folder = Package("calm", "stop_criterion").write(tmp_path)
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace(*change))
    done = check(genkit, folder)
    assert (done.status, done.out) == (1, "")
    assert words in done.err


def test_an_empty_name_is_no_plugin(
    genkit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = check(genkit, "")
    assert done.status == 1 and "there is no plugin named ''" in done.err


def test_options_are_given_one_by_one(genkit: Any, tmp_path: Path) -> None:
    done = check(genkit, write(tmp_path, "calm", CALM), "--set", "calm=1")
    assert done.status == 1 and "as calm.OPTION=VALUE" in done.err


def test_a_folder_for_another_version_says_so(genkit: Any, tmp_path: Path) -> None:
    folder = Package("calm", "stop_criterion").write(tmp_path)
    module = folder / "src/genkit_calm/__init__.py"
    module.write_text("genkit_api = '>=2'\nfrom genkit.plugins import what_2_has\n")
    done = check(genkit, folder)
    assert (done.status, done.out) == (1, "")
    assert f"({folder}) cannot be loaded: it works with version >=2 of genkit's" in done.err
