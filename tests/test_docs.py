"""What README.md and docs/ show is run, so that it works as shown.

Each page is one story: its blocks run in order, Python ones in one namespace, in an empty folder.

- ``python``: executed.
- ``shell``: lines that begin with `genkit` go through the command's entry function, and must
  succeed; of scripts it is checked that they are there.
- any block with ``title="FILE"``: written to that file, for the blocks that follow.
- ``console``: for what must not run here, as installing does. Shown only, like data.
"""

import os
import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
RUN = {"python", "shell"}
SHOWN = {"console", "json", "text", "toml", "yaml"}
BLOCK = re.compile(
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<attributes>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    title: str | None
    code: str
    line: int


def blocks_of(text: str) -> list[Block]:
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


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> None:
    # Empty lines in front, so that a traceback names the line of the page.
    source = "\n" * (block.line - 1) + block.code
    exec(compile(source, str(page), "exec"), namespace)


def run_shell(block: Block) -> None:
    from genkit.cli import main

    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "genkit":
            assert main(words[1:]) == 0, line
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK), line
        else:
            pytest.fail(f"{line!r} cannot be run here; mark its block `console`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "shell":
            run_shell(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_whether_it_runs(page: Path) -> None:
    for block in blocks_of(page.read_text(encoding="utf-8")):
        assert block.language in RUN | SHOWN, f"{page.name}, line {block.line}"


def test_blocks_are_found_with_title_and_line() -> None:
    text = 'a\n```python\nx = 1\n```\n  ```yaml title="r.yaml"\n  y: 2\n  ```\n'
    assert blocks_of(text) == [
        Block("python", None, "x = 1\n", 3),
        Block("yaml", "r.yaml", "y: 2\n", 6),
    ]


def test_an_error_names_the_line_of_the_page() -> None:
    block = Block("python", None, "x = 1\nassert x == 2\n", line=40)
    with pytest.raises(AssertionError) as caught:
        run_python(block, Path("page.md"), {})
    assert caught.traceback[-1].lineno == 40  # counted from 0


@pytest.mark.parametrize("line", ["curl example", "scripts/no-such-script"])
def test_a_line_that_cannot_be_run_fails(line: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_shell(Block("shell", None, line, 1))
