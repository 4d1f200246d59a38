"""What README.md and docs/ show is run and works as shown, and what they link to is there."""

import importlib.metadata
import re
import shlex
import sys
from pathlib import Path

import markdown
import pytest
import yaml

from pages import (
    BLOCK,
    READ,
    ROOT,
    RUN,
    SHOWN,
    Block,
    blocks_of,
    compare,
    forget_modules_of,
    problems_of,
    read_mention,
    read_script,
    read_yaml,
    run_python,
    run_shell,
    tell,
)

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
# MkDocs looks at the links of the others.
OUTSIDE_THE_SITE = [page for page in PAGES if ROOT / "docs" not in page.parents]
INLINE = re.compile(r"`((?:\w+: )?\{type: [^`]*\})`")
SHORT = [
    (page, match[1])
    for page in PAGES
    for match in INLINE.finditer(page.read_text(encoding="utf-8"))
]
MENTIONED = [
    (page, " ".join(match[1].split()))
    for page in PAGES
    for match in re.finditer(
        r"`((?:genkit|scripts/\w+)\s[^`]+)`", BLOCK.sub("", page.read_text(encoding="utf-8"))
    )
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_shows_works(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"^genkit plugins new (\w+)", text, re.MULTILINE):
        if is_installed(f"lm-genkit-{name.replace('_', '-')}"):
            pytest.skip(f"{name} is installed in this environment, and the page makes it anew")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    tell(text, page, capsys)


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_whether_it_runs(page: Path) -> None:
    for block in blocks_of(page.read_text(encoding="utf-8")):
        assert block.language in RUN | READ | SHOWN, f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_fenced_with_grave_accents(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^ *~~~", text, re.MULTILINE)
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks_of(text))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_made_by_indenting(page: Path) -> None:
    assert not indented(page.read_text(encoding="utf-8"))


def indented(text: str) -> list[str]:
    """The blocks of code of a page that stand in no fence."""
    html = markdown.markdown(BLOCK.sub("", text), extensions=["admonition"])
    return re.findall(r"<pre>.*?</pre>", html, re.DOTALL)


@pytest.mark.parametrize(
    ("page", "line"), MENTIONED, ids=[f"{name_of(page)}-{line}" for page, line in MENTIONED]
)
def test_a_command_within_a_line_is_one(page: Path, line: str) -> None:
    words = shlex.split(line)
    (read_mention if words[0] == "genkit" else read_script)(words)


@pytest.mark.parametrize(("page", "short"), SHORT, ids=[f"{name_of(p)}-{s}" for p, s in SHORT])
def test_a_part_within_a_line_is_one(page: Path, short: str) -> None:
    part = yaml.safe_load(short)
    if "type" not in part:
        assert not problems_of(part)
        return
    places = {"processors": [part], "stop_criteria": [part], "sampler": part, "cache": part}
    found = [problems_of({section: value}) for section, value in places.items()]
    assert [] in found, found


@pytest.mark.parametrize("page", OUTSIDE_THE_SITE, ids=name_of)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in headings}


# What tells the pages.


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


@pytest.mark.parametrize(
    "line",
    [
        "curl example",
        "scripts/no-such-script",
        "scripts/check no_such_stage",
        "scripts/bench --no-such-option",
        "scripts/test tests/no_such_test.py",
        "scripts/test --no-such-option",
        "genkit parts no_such_kind",
        "genkit --help  # ends with 1",
    ],
)
def test_a_line_that_does_not_do_what_it_says_fails(line: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_shell(Block("shell", None, line, 1))


def test_a_command_in_the_clone_leaves_its_modules_alone() -> None:
    before = dict(sys.modules)
    forget_modules_of(ROOT)
    assert sys.modules == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("genkit no_such_command", "has no command 'no_such_command'"),
        ("genkit recipes no_such_command", "has no command 'no_such_command'"),
        ("genkit export MODEL --no-such-option", "export has no --no-such-option"),
    ],
)
def test_a_mention_of_what_is_not_there_fails(line: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        read_mention(line.split())


def test_a_block_that_is_made_by_indenting_is_seen() -> None:
    fenced = "- one:\n\n    ```shell\n    genkit parts\n    ```\n\n!!! note\n\n    Two.\n"
    assert not indented(fenced)
    assert indented(fenced + "\nThree:\n\n    genkit parts\n")


def test_a_line_may_say_how_it_ends() -> None:
    run_shell(Block("shell", None, "genkit parts no_such_kind  # ends with 1", 1))


def test_a_line_may_set_a_variable_and_write_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_shell(Block("shell", None, "COLUMNS=40 genkit recipes schema > schema.json", 1))
    assert "properties" in Path("schema.json").read_text(encoding="utf-8")


def test_a_line_may_read_what_another_command_prints_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("Once upon", encoding="utf-8")
    for line in ("genkit score --json - < text.txt", "printf 'Once upon' | genkit score --json -"):
        run_shell(Block("shell", None, line, 1))
        assert '"Once"' in capsys.readouterr().out


TOLD = """```python
print("loss 0.5 in run 0123abcd of", 12)
```
It prints:
```text{title}
{wanted}
```
"""


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("", "loss 0.5 in run 0123abcd\nof   12"),
        ("", "loss ... 12"),
        (' title="measured"', "loss 0.25 in run 9876fedc of 12"),
        (' title="measured"', "loss 0 in run 0123abcd of 12"),
    ],
)
def test_text_after_a_block_is_what_it_prints(
    title: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(TOLD.format(title=title, wanted=wanted), Path("page.md"), capsys)


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("", "loss 0.25 in run 0123abcd of 12"),
        (' title="measured"', "loss 0.25 in run 9876fedc of 13"),
    ],
)
def test_text_that_is_not_printed_fails(
    title: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pytest.fail.Exception, match="and not"):
        tell(TOLD.format(title=title, wanted=wanted), Path("page.md"), capsys)


def test_a_recipe_that_nobody_reads_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"nobody reads x\.yaml"):
        tell('```yaml title="x.yaml"\nversion: 1\n```\n', Path("page.md"), capsys)


def test_sections_are_checked() -> None:
    read_yaml(Block("yaml", None, "cache: {type: prefix}\n", 1))
    with pytest.raises(AssertionError, match="line 1"):
        read_yaml(Block("yaml", None, "cache: {type: prefixx}\n", 1))


def test_text_is_compared_as_a_whole() -> None:
    with pytest.raises(pytest.fail.Exception):
        compare(Block("text", None, "one\n", 1), ["one\ntwo\n", ""])
