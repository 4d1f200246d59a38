"""The generated reference: it leaves nothing out, what it shows works, and no gap stays unseen."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import mkdocs.exceptions
import mkdocs_hook
import pluggy
import pytest
import typer
from mkdocs.config.base import load_config
from mkdocs.structure.files import Files
from pydantic import BaseModel, Field
from reference import Subjects, Undocumented, pages
from reference.commands import shown, walk
from reference.examples import example
from reference.markdown import as_is, prose, table
from reference.options import undescribed
from reference.parts import file_name
from reference.python import read

from genkit import Kit, cli, errors
from genkit.components.base import LogitsProcessor
from genkit.errors import GenkitError
from genkit.plugins import hookspecs
from genkit.plugins.lazy_part import Lazy
from genkit.plugins.registry import PartEntry
from genkit.recipes.schema import SECTIONS
from pages import Block, blocks_of, install, parse, run_python, run_shell

ROOT = Path(__file__).parent.parent
SUBJECTS = Subjects()
IN_RECIPES = [entry for entry in SUBJECTS.parts if entry.kind in SECTIONS.values()]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages(SUBJECTS)


def headings(page: str) -> list[str]:
    return re.findall(r"^##+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)


# What is there.


def test_every_part_has_a_section_and_a_line_in_the_index(made: dict[str, str]) -> None:
    for entry in SUBJECTS.parts:
        page = made[file_name(entry.kind)]
        assert entry.name in headings(page)
        assert f"| [`{entry.name}`](#{entry.name}) | {entry.summary}" in page
        assert f"`{entry.name}`" in made["index.md"]


def test_every_hook_error_and_command_has_a_section(made: dict[str, str]) -> None:
    hooks = {name for name in vars(hookspecs) if name.startswith("genkit_")}
    assert hooks <= set(headings(made["hooks.md"]))
    known = [getattr(errors, name) for name in errors.__all__]
    names = {e.__name__ for e in known if isinstance(e, type) and issubclass(e, GenkitError)}
    assert names <= set(headings(made["errors.md"]))
    assert {"genkit", "genkit generate", "genkit recipes diff"} <= set(
        headings(made["command-line.md"])
    )


def test_every_offered_name_is_on_the_page_of_python(made: dict[str, str]) -> None:
    import genkit.plugins
    import genkit.testing

    for module in (genkit, genkit.plugins, genkit.testing):
        for name in module.__all__:
            assert name == "__version__" or re.search(rf"[.]{name}\b", made["python.md"]), name


def test_a_part_is_told_with_formula_example_options_and_promises(made: dict[str, str]) -> None:
    [section] = re.findall(r"^## top_p\n.*?(?=^## )", made["logits-processors.md"], re.S | re.M)
    assert "- ``above<=p``: one more where the mass is exactly p." in section
    assert "```pycon\n>>> from genkit.testing import process\n" in section
    assert "```yaml\nprocessors:\n  - {type: top_p, p: 0.8}\n```" in section
    assert "| `p` | number, at least 0, at most 1<br>required | the mass to keep" in section
    assert "| `min_keep` | integer, at least 1<br>default `1` | how many tokens" in section
    assert "- The most probable token stays the most probable one (`keeps_argmax`)." in section


def test_a_part_is_told_with_what_it_raises(made: dict[str, str]) -> None:
    [section] = re.findall(r"^## bad_words\n.*?(?=^## )", made["logits-processors.md"], re.S | re.M)
    assert (
        "- It raises [`UnsupportedError`](errors.md#unsupportederror): there are words as text, "
        "and no tokenizer." in section
    )


def test_the_grade_and_the_needs_of_a_cache_are_told_in_words(made: dict[str, str]) -> None:
    [section] = re.findall(r"^## sink_window\n.*?(?=^## )", made["cache-managers.md"], re.S | re.M)
    assert "- Grade `lossy`: it gives other logits; what is lost is measured." in section
    assert "- It needs the capability `layers`:" in section


def test_options_inside_options_are_listed(made: dict[str, str]) -> None:
    assert "Options of a `SynthID`, `type: synthid`:" in made["logits-processors.md"]


# What is shown works.


@pytest.mark.parametrize("entry", IN_RECIPES, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_a_recipe_with_the_shown_lines_can_be_read(entry: PartEntry, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    backend = "" if entry.kind == "backend" else "backend: {type: pytorch, model: smollm2}\n"
    file.write_text(f"version: 1\n{backend}{example(entry)}\n", encoding="utf-8")
    recipe = Kit(entry_points=False).recipe(file).to_dict()
    key = {kind: key for key, kind in SECTIONS.items()}[entry.kind]
    parts = recipe[key] if isinstance(recipe[key], list) else [recipe[key]]
    assert [part["type"] for part in parts] == [entry.name]


COMMANDS = list(walk(SUBJECTS.app))
NOT_RUN = {
    "genkit verify": "it takes minutes; tests/cli/test_verify.py runs it on a small model",
    "genkit export": "it takes minutes; tests/cli/test_export.py runs it on a small model",
}
SLOW = ("genkit chat", "genkit generate", "genkit plugins check")


def runnable() -> list[Any]:
    """The commands, with what keeps their examples from being run."""
    found = []
    for context in COMMANDS:
        path = context.command_path
        marks = [pytest.mark.skip(reason=NOT_RUN[path])] if path in NOT_RUN else []
        marks += [pytest.mark.slow] if path in SLOW else []
        found.append(pytest.param(context, id=path, marks=marks))
    return found


SKETCH = """
from typing import Literal

from genkit.components.base import LogitsProcessor
from genkit.plugins import hookimpl


class Sketch(LogitsProcessor):
    '''Halves the logits.'''

    type: Literal["sketch"] = "sketch"

    def bind(self, run):
        return Halving()


class Halving:
    def __call__(self, state, logits):
        return logits / 2

    def reorder(self, indices):
        pass  # it remembers nothing of rows


@hookimpl
def genkit_register_logits_processors():
    return [Sketch]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, with the files that examples read, and a change to them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    for file in ("recipe.yaml", "my-recipe.yaml"):
        run_shell(Block("shell", None, f"genkit recipes show smollm2-chat > {file}", 1))
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.7}))
    (tmp_path / "text.txt").write_text("Once upon a time.")
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "--intent-to-add", "text.txt"], check=True)
    return tmp_path


@pytest.mark.parametrize("context", runnable())
def test_what_a_command_shows_runs(context: Any, folder: Path) -> None:
    if context.command_path == "genkit plugins check":
        for name, kind in (("calm", "processor"), ("lucky", "sampler")):
            assert cli.main(["plugins", "new", name, "--kind", kind]) == 0
        install(folder / "lm-genkit-calm")
        (folder / "sketch.py").write_text(SKETCH)
    run_shell(Block("shell", None, shown(context), 1))


def test_what_is_shown_of_hooks_defines_them(made: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typing.TYPE_CHECKING", True)  # so that what annotations name is there
        names = runpy.run_path(str(hookspecs.__file__))
    shown = dict(names)
    for block in blocks_of(made["hooks.md"]):
        run_python(block, Path("hooks.md"), shown)
    hooks = [name for name in names if name.startswith("genkit_")]
    assert hooks
    for name in hooks:
        assert shown[name] is not names[name], name
        assert [*inspect.signature(shown[name]).parameters] == [
            *inspect.signature(names[name]).parameters
        ]


def shown_lines() -> list[list[str]]:
    lines = [line for context in COMMANDS for line in shown(context).splitlines()]
    lines += [example(entry) for entry in SUBJECTS.parts if entry.kind == "exporter"]
    commands = [shlex.split(piece) for line in lines for piece in re.split(r" [|<>] ", line)]
    return [words for words in commands if words[:1] == ["genkit"]]


@pytest.mark.parametrize("words", shown_lines(), ids=" ".join)
def test_a_shown_command_has_these_arguments_and_options(words: Sequence[str]) -> None:
    parse(words)  # it raises if a word is not known


# A gap is seen.


class Scheme(BaseModel):
    strength: float = 1.0


class Wordless(LogitsProcessor):
    type: Literal["wordless"] = "wordless"


class Undescribed(LogitsProcessor):
    """``l' = l``, with an option that nobody describes."""

    type: Literal["undescribed"] = "undescribed"
    strength: float = 1.0


class Blank(LogitsProcessor):
    """``l' = l``, with options that blanks and signs describe."""

    type: Literal["blank"] = "blank"
    strength: float = Field(1.0, description=" ")
    weight: float = Field(1.0, description="...")


class Formless(LogitsProcessor):
    """Has an example ``exp(0) = 1`` and a ``key: value``, no formula."""

    type: Literal["formless"] = "formless"


class Nested(LogitsProcessor):
    """``l' = l``, with an option inside an option that nobody describes."""

    type: Literal["nested"] = "nested"
    scheme: Scheme | None = Field(None, description="how")


class Dot(LogitsProcessor):
    """."""

    type: Literal["dot"] = "dot"


class Unshown(LogitsProcessor):
    """``l' = l``, with an option that must be given, and no example."""

    type: Literal["unshown"] = "unshown"
    strength: float = Field(description="how much")


def lacks_of(subjects: Subjects) -> list[str]:
    with pytest.raises(Undocumented) as caught:
        pages(subjects)
    return list(caught.value.lacks)


def with_part(part: type[LogitsProcessor]) -> Subjects:
    name = part.type_name()
    entry = PartEntry("logits_processor", name, SUBJECTS.parts[0].plugin, part)
    return replace(SUBJECTS, parts=[*SUBJECTS.parts, entry])


@pytest.mark.parametrize(
    ("part", "lack"),
    [
        (Wordless, "logits processor wordless: its class has no docstring"),
        (Dot, "logits processor dot: its class has no docstring"),
        (
            Formless,
            "logits processor formless: its docstring has no formula, such as ``l' = l / T``",
        ),
        (Undescribed, "logits processor undescribed: its option 'strength' has no description"),
        (Nested, "logits processor nested: Scheme: its option 'strength' has no description"),
        (
            Unshown,
            "logits processor unshown: no example has the option 'strength'; make one in the "
            "docstring, or say Field(examples=[...])",
        ),
    ],
)
def test_a_part_that_is_not_documented_is_seen(part: type[LogitsProcessor], lack: str) -> None:
    assert lacks_of(with_part(part)) == [lack]


def test_blanks_and_signs_describe_no_option() -> None:
    assert lacks_of(with_part(Blank)) == [
        f"logits processor blank: its option {name!r} has no description"
        for name in ("strength", "weight")
    ]


def test_a_summary_that_is_not_the_docstrings_is_seen() -> None:
    entry = SUBJECTS.parts[0]
    assert isinstance(entry.target, Lazy)
    other = replace(entry, target=replace(entry.target, summary="Something else."))
    [lack] = lacks_of(replace(SUBJECTS, parts=[other, *SUBJECTS.parts[1:]]))
    assert "'Something else.' is not the first line of its docstring" in lack


def test_summaries_of_the_plugins_here_are_those_of_their_docstrings() -> None:
    for entry in Kit().parts():
        assert entry.summary == entry.part_class.summary(), entry.name


def test_options_of_the_plugins_here_are_described() -> None:
    entries = Kit().parts()
    assert {"edt", "structured"} <= {entry.name for entry in entries}
    assert not [lack for entry in entries for lack in undescribed(entry.name, entry.part_class)]


def test_a_hook_without_a_docstring_is_seen() -> None:
    hooks = types.ModuleType("hooks")
    vars(hooks).update(vars(hookspecs))

    @pluggy.HookspecMarker("genkit")
    def genkit_made_up(run: object) -> None: ...

    hooks.genkit_made_up = genkit_made_up  # type: ignore[attr-defined]
    assert lacks_of(replace(SUBJECTS, hooks=hooks)) == ["hook genkit_made_up: it has no docstring"]


def test_a_hook_that_is_not_marked_is_seen() -> None:
    hooks = types.ModuleType("hooks")
    vars(hooks).update(vars(hookspecs))

    def genkit_made_up(run: object) -> None:
        """Called now and then."""

    hooks.genkit_made_up = genkit_made_up  # type: ignore[attr-defined]
    assert lacks_of(replace(SUBJECTS, hooks=hooks)) == [
        "hook genkit_made_up: it is not marked with @hookspec"
    ]


class SilentError(GenkitError):
    pass


class HelplessError(GenkitError):
    """It is raised now and then."""


class EmptyAdviceError(GenkitError):
    """It is raised now and then.

    What to do: .
    """


class HiddenError(GenkitError):
    """It is raised now and then.

    What to do: nothing.
    """


@pytest.mark.parametrize(
    ("error", "offered", "lack"),
    [
        (SilentError, True, "error SilentError: it has no docstring"),
        (HelplessError, True, "error HelplessError: its docstring has no paragraph 'What to do:'"),
        (
            EmptyAdviceError,
            True,
            "error EmptyAdviceError: its docstring has no paragraph 'What to do:'",
        ),
        (HiddenError, False, "error HiddenError: it is not in genkit.errors.__all__"),
    ],
)
def test_an_error_that_is_not_documented_is_seen(
    error: type[GenkitError], offered: bool, lack: str
) -> None:
    module = types.ModuleType("genkit.errors")
    vars(module).update(vars(errors))
    vars(module)[error.__name__] = error
    module.__all__ = [*errors.__all__, *[error.__name__] * offered]  # type: ignore[attr-defined]
    assert lacks_of(replace(SUBJECTS, errors=module)) == [lack]


def test_an_error_that_is_in_another_module_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "made_up_errors"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text(
        '__all__ = ["Known"]\n\n\nclass Known(Exception):\n'
        '    """It is raised now and then.\n\n    What to do: nothing.\n    """\n'
    )
    (package / "elsewhere.py").write_text(
        "from made_up_errors import errors\n\n\nclass Lost(errors.Known): ...\n\n\n"
        "class Found(Lost): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("made_up_errors.errors")
    assert lacks_of(replace(SUBJECTS, errors=module)) == [
        f"error made_up_errors.elsewhere.{name}: it is not in made_up_errors.errors"
        for name in ("Lost", "Found")
    ]


def test_commands_and_options_that_are_not_documented_are_seen() -> None:
    app = typer.Typer(name="genkit", help="Made up.", rich_markup_mode=None)

    @app.command()
    def silent(
        loud: Annotated[bool, typer.Option("--loud")] = False,
        word: Annotated[str, typer.Option(help="-")] = "",
    ) -> None: ...

    @app.command(epilog="\b\nExample:\n  genkit fine", help="Documented.")
    def fine(loud: Annotated[bool, typer.Option("--loud", help="Aloud.")] = False) -> None: ...

    assert lacks_of(replace(SUBJECTS, app=app)) == [
        "command genkit: its epilog has no example",
        "command genkit silent: it has no help",
        "command genkit silent: its epilog has no example",
        "command genkit silent: option 'loud' has no help",
        "command genkit silent: option 'word' has no help",
    ]


def test_names_that_are_not_documented_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up_module.py").write_text(
        '"""Made up."""\n\n__all__ = ["LIMIT", "Thing", "call"]\n\n'
        'LIMIT = 3\n\n\nclass Thing:\n    """Is there."""\n\n    def go(self): ...\n\n'
        "\ndef call(): ...\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert lacks_of(replace(SUBJECTS, modules=["made_up_module"])) == [
        "made_up_module.LIMIT has no docstring",
        "made_up_module.Thing.go has no docstring",
        "made_up_module.call has no docstring",
    ]


def test_a_name_that_is_a_module_too_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        '"""Made up."""\n\nfrom made_up_package.call import call\n\n__all__ = ["call"]\n',
        encoding="utf-8",
    )
    (package / "call.py").write_text(
        '"""Made up."""\n\n\ndef call():\n    """Is there."""\n', encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert lacks_of(replace(SUBJECTS, modules=["made_up_package"])) == [
        "made_up_package.call has the name of a module beside it"
    ]


def test_all_gaps_are_told_at_once() -> None:
    subjects = replace(with_part(Wordless), app=typer.Typer(name="genkit", callback=lambda: None))
    assert [lack.partition(":")[0] for lack in lacks_of(subjects)] == [
        "logits processor wordless",
        "command genkit",
        "command genkit",
    ]


def test_a_gap_fails_the_build_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mkdocs_hook, "Subjects", lambda: with_part(Wordless))
    config = load_config(str(ROOT / "mkdocs.yml"))
    with pytest.raises(mkdocs.exceptions.PluginError, match="wordless: its class has no docstring"):
        mkdocs_hook.on_files(Files([]), config)


# Markdown.


def test_examples_and_literal_blocks_of_a_docstring_become_blocks() -> None:
    docstring = "One line.\n\nAs here::\n\n    a = b\n\n>>> 1 + 1\n2"
    assert prose(docstring) == "One line.\n\nAs here:\n\n    a = b\n\n```pycon\n>>> 1 + 1\n2\n```"


def test_a_cell_is_one_line_and_may_hold_a_bar() -> None:
    rows = [["one\ntwo | `three|four`"]]
    assert table(["a"], rows) == "| a |\n| --- |\n| one two \\| `three|four` |"


def test_signs_of_markdown_stand_for_themselves_outside_code() -> None:
    assert as_is(r"2**3, <a>, \n and `2**3`") == r"2\*\*3, &lt;a>, \\n and `2**3`"


# What plugins build on.

SOURCES = sorted(
    [
        *ROOT.glob("plugins/*/src/**/*.py"),
        *ROOT.glob("src/genkit/scaffold/templates/**/*.py.jinja"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("examples/**/*.py"),
    ]
)


@pytest.fixture(scope="module")
def documented(made: dict[str, str]) -> set[str]:
    """Where that is defined which has a place on a page: by its name, as a part, as an error."""
    shown = [read(path) for path in re.findall(r"^::: (\S+)$", "\n".join(made.values()), re.M)]
    inside = [
        inner
        for module in shown
        for name, inner in (module.members if module.is_module else {}).items()
        if not name.startswith("_") and not inner.is_alias and inner.docstring
    ]
    modules = map(read, re.findall(r"^\| `(genkit[\w.]+)` \|", made["python.md"], re.M))
    parts = (entry.part_class for entry in SUBJECTS.parts)
    return {
        *(each.path for each in (*shown, *inside, *modules)),
        *(f"{part.__module__}.{part.__qualname__}" for part in parts),
        *(f"genkit.errors.{name}" for name in headings(made["errors.md"])),
    }


def imports(text: str) -> list[str]:
    """The paths of what is imported from genkit, in a file or in the examples of a page."""
    found = re.findall(r"^ *import (genkit[\w.]*)", text, re.MULTILINE)
    code = re.sub(r"  #.*", "", text)
    for module, names in re.findall(
        r"^ *from (genkit(?:\.\w+)*) import (\([^)]*\)|.+)$", code, re.MULTILINE
    ):
        found += [
            f"{module}.{name.split()[0]}" for name in names.strip("()").split(",") if name.strip()
        ]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_what_is_imported_in_packages_templates_and_pages_is_documented(
    path: Path, documented: set[str]
) -> None:
    for name in imports(path.read_text(encoding="utf-8")):
        if not name.startswith("genkit_"):  # the package's own
            assert read(name).path in documented, name


def test_a_name_that_no_page_shows_is_seen(documented: set[str]) -> None:
    code = "from genkit.core.contracts import (\n    Model,\n    name_of,  # ours\n)\n"
    assert imports(code) == ["genkit.core.contracts.Model", "genkit.core.contracts.name_of"]
    hidden = ("genkit.errors.FAILURES", "genkit.backends.base")
    assert not documented & {read(name).path for name in hidden}
