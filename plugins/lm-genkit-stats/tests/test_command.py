"""``genkit stats FILE``, and what the README shows."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import pytest

import genkit_stats
from genkit.cli import main
from genkit_stats.summary import figures, read

HERE = Path(genkit_stats.__file__)
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def genkit(*words: str) -> int:
    """Run the command; from a source tree the plugin is named as a file."""
    entries = importlib.metadata.entry_points(group="genkit", name="stats")
    return main([*([] if entries else ["--plugin", str(HERE)]), *words])


def record(**values: Any) -> dict[str, Any]:
    usual = {"run": "a", "row": 0, "entropy": 1.0, "raw_entropy": 2.0, "rank": 0, "elapsed": 0.5}
    return {**usual, **values}


# Run a: two rows; the prefill ends after 0.5 s, and two more steps take 0.5 s each.
RECORDS = [
    record(),
    record(row=1, entropy=3.0),
    record(elapsed=1.0, rank=2),
    record(row=1, elapsed=1.0, rank=6),
    record(elapsed=1.5, raw_entropy=7.0),
    record(run="b", entropy=0.0),
]
LINES = [json.dumps(each) for each in RECORDS]
A = {
    "rows": 2,
    "tokens": 5,
    "mean_entropy": 7 / 5,
    "mean_raw_entropy": 3.0,
    "mean_rank": 8 / 5,
    "tokens_per_second": 3.0,
}
ALL = {
    "rows": 3,
    "tokens": 6,
    "mean_entropy": 7 / 6,
    "mean_raw_entropy": 17 / 6,
    "mean_rank": 8 / 6,
    "tokens_per_second": 3.0,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stats.jsonl"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_figures_of_one_run_and_of_all() -> None:
    runs, num_left_out = read(LINES)
    assert num_left_out == 0
    assert figures([runs["a"]]) == pytest.approx(A)
    assert figures([runs["b"]])["tokens_per_second"] is None  # one step has no pace
    assert figures(runs.values()) == pytest.approx(ALL)


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "7", "[]", "null", '{"run": "a"}', LINES[0][:40]),
        LINES[0].replace("1.0", "NaN"),
        json.dumps(record(rank=None)),
        json.dumps(record(row="x", run="only")),
        *(json.dumps(record(**{name: 10**400})) for name in ("row", "rank", "elapsed")),
        *(json.dumps(record(**{name: 1e300})) for name in ("rank", "elapsed", "entropy")),
        LINES[0].replace('"rank": 0', f'"rank": {"9" * 5000}'),  # no int of Python's is read so
    ],
)
def test_other_lines_are_left_out(line: str) -> None:
    runs, num_left_out = read([LINES[0], line, LINES[1]])
    assert num_left_out == 1
    assert list(runs) == ["a"]
    assert runs["a"].tokens == 2


def test_the_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert genkit("stats", str(file)) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "run  rows  tokens  mean entropy   raw  mean rank  tokens/s",
        "  a     2       5          1.40  3.00       1.60      3.00",
        "  b     1       1          0.00  2.00       0.00         -",
        "all     3       6          1.17  2.83       1.33      3.00",
    ]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\ud800", r"\ud800"),
        ("x" * 10_000, "x" * 32 + "..."),
        ("all", "all"),
    ],
)
def test_a_strange_name_of_a_run_is_shown_as_one_word(
    name: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "strange.jsonl"
    file.write_text(json.dumps(record(run=name)), encoding="utf-8")
    assert genkit("stats", str(file)) == 0
    _, row, whole = capsys.readouterr().out.splitlines()
    assert row.split() == [shown, *whole.split()[1:]]


def test_figures_are_finite_whatever_the_clock_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clock.jsonl"
    lines = [record(elapsed=0.0), record(elapsed=5e-324), record(elapsed=1e-320)]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert genkit("stats", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["all"]["tokens_per_second"] is None


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert genkit("stats", str(file), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [run.pop("run") for run in told["runs"]] == ["a", "b"]
    assert told["runs"][0] == pytest.approx(A)
    assert told["all"] == pytest.approx(ALL)


def test_lines_left_out_are_counted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with file.open("ab") as stream:
        stream.write(b'\xff\xfe\n{"run": "a", "ro')
    assert genkit("stats", str(file)) == 0
    captured = capsys.readouterr()
    assert captured.err == "2 lines are no records and are left out\n"
    assert len(captured.out.splitlines()) == 4


def test_a_file_without_records_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n", encoding="utf-8")
    assert genkit("stats", str(empty)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"error: {empty} has no record of a run; runs write to the file that GENKIT_STATS_FILE "
        "names\n"
    )


def test_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.jsonl"
    assert genkit("stats", str(missing)) == 1
    assert capsys.readouterr().err == f"error: {missing}: No such file or directory\n"


def test_the_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert genkit("stats", "--help") == 0
    assert "genkit stats stats.jsonl" in capsys.readouterr().out
    assert genkit("--help") == 0
    assert "Sum up a file of statistics." in capsys.readouterr().out


def test_what_the_readme_shows_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (python,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    exec(python, {})
    shell = re.findall(r"^```shell\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[-1]
    assert genkit(*shell.split()[1:]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    (shown,) = re.findall(r"^```json\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    first = (tmp_path / "tiny.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert list(json.loads(shown)) == list(json.loads(first))
