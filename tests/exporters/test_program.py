from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from genkit.errors import UnsupportedError
from genkit.exporters.program import reason, run_python


def test_a_program_runs_quietly(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_python(["-c", f"print('much'); open({str(tmp_path / 'made')!r}, 'w')"], "it")
    assert (tmp_path / "made").exists()
    assert capfd.readouterr() == ("", "")


def test_a_failure_is_one_line_with_all_that_was_printed_as_its_cause() -> None:
    program = "print('working ...')\nraise ValueError('no\\nsuch thing')"
    with pytest.raises(UnsupportedError) as caught:
        run_python(["-c", program], "the exporter cannot")
    assert str(caught.value) == "the exporter cannot: no"
    assert str(caught.value.__cause__).startswith("working ...\nTraceback")


def test_an_end_from_outside_is_told() -> None:
    with pytest.raises(UnsupportedError, match="it: it was ended from outside, by signal 9"):
        run_python(["-c", "import os; os.kill(os.getpid(), 9)"], "it")


def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(UnsupportedError, match="it: no/such/python cannot be run: No such file"):
        run_python(["-c", ""], "it", "no/such/python")


def test_an_interpreter_is_found_from_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    run_python(["-S", "-c", ""], "it", os.path.join("bin", "python"))


def test_what_lies_in_the_folder_of_the_user_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported the wrong json')")
    monkeypatch.chdir(tmp_path)
    run_python(["-m", "json.tool", "--help"], "it")


def test_nobody_waits_for_a_program_that_was_left_behind() -> None:
    left = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; "
    left += "time.sleep(30)'])"
    start = time.monotonic()
    run_python(["-c", left], "it")
    assert time.monotonic() - start < 25


TORCH = """
Traceback (most recent call last):
  File "core.py", line 1, in _translate
    raise DispatchError(
torch.onnx._errors.DispatchError: No ONNX function found for erf_inv.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
torch.onnx._errors.ConversionError: Failed to convert the program to an ONNX model. Step 3
## Exception summary
<class 'torch.onnx._errors.DispatchError'>: No ONNX function found
"""

HANDLED = """
Traceback (most recent call last):
KeyError: 'mine'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
ValueError: the model type is not known
"""


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (TORCH, "No ONNX function found for erf_inv."),
        (HANDLED, "the model type is not known"),
        ("Traceback:\n    raise X\nNotImplementedError: not supported\n", "not supported"),
        ("KeyboardInterrupt: \nSystemExit: 3", "3"),
        ("usage: x\nx: error: wrong", "usage: x x: error: wrong"),
        ("", "it failed without a word"),
        ("ValueError: " + "word " * 100, "word " * 59 + "word ..."),
    ],
)
def test_the_reason_is_what_the_last_exception_goes_back_to(printed: str, expected: str) -> None:
    assert reason(printed) == expected
