from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genkit.testing import TinyModel


def test_piped_lines_are_messages(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, stdin="one\n\ntwo\n/exit\nthree\n")
    assert (done.status, done.out) == (0, "Hello.\nHello.\n")
    assert done.err == "loading the scripted model\n"


def test_the_end_of_the_input_ends_the_conversation(genkit: Any, scripted: Path) -> None:
    assert genkit("chat", "-r", scripted, stdin="one").out == "Hello.\n"
    assert genkit("chat", "-r", scripted, stdin="").status == 0


def test_commands(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, stdin="/help\n/reset\n/nothing\n//sent\n")
    assert (done.status, done.out) == (0, "Hello.\n")
    assert "/reset  forget" in done.err
    assert "A new conversation." in done.err
    assert "There is no command /nothing." in done.err


def test_a_conversation_repeats_under_its_seed(genkit: Any, tiny: Path) -> None:
    arguments = ["chat", "-r", tiny, "--seed", 3]
    first = genkit(*arguments, stdin="one\ntwo\n").out
    assert genkit(*arguments, stdin="one\ntwo\n").out == first
    assert genkit("chat", "-r", tiny, "--seed", 4, stdin="one\ntwo\n").out != first


def test_reset_begins_anew(genkit: Any, tiny: Path) -> None:
    greedy = ["chat", "-r", tiny, "--set", "sampler.type=greedy", "--set", "processors=[]"]
    one = genkit(*greedy, stdin="one\n").out
    assert genkit(*greedy, stdin="one\n/reset\none\n").out == one + one
    assert genkit(*greedy, stdin="one\none\n").out != one + one


def test_options_reach_the_answer(genkit: Any, scripted: Path) -> None:
    assert genkit("chat", "-r", scripted, "--stop", "l", stdin="hi\n").out == "He\n"
    assert genkit("chat", "-r", scripted, "--max-new-tokens", 3, stdin="hi\n").out == "Hel\n"


def test_with_prefixes_a_turn_feeds_its_own_tokens(
    genkit: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    last = TinyModel.last

    def noting(model: TinyModel, input_ids: Any, cache: Any, n: int) -> Any:
        widths.append(input_ids.shape[1])
        return last(model, input_ids, cache, n)

    monkeypatch.setattr(TinyModel, "last", noting)
    arguments = ["chat", "-r", tiny, "--seed", 3]
    plain = genkit(*arguments, stdin="one\nthree\n").out
    first, second = widths[0], widths[8]
    assert second > first
    widths.clear()
    cached = genkit(*arguments, "--set", "cache.type=prefix", stdin="one\nthree\n").out
    assert cached == plain
    # The last token of the answer, its end, and the new message in its template.
    turn = len("?<\n") + len("<user\nthree<\n") + len("<assistant\n")
    assert widths == [first, *[1] * 7, turn, *[1] * 7]


def test_it_needs_the_context_chat(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, "--set", "context={type: text}", stdin="hi\n")
    assert (done.status, done.out) == (1, "")
    assert "needs the context 'chat', found 'text'" in done.err
    assert "loading" not in done.err


def test_an_error_ends_piped_input(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, "--set", "backend.fail_at=2", stdin="hi\nthere\n")
    assert (done.status, done.out) == (1, "He\n")
    assert "out of memory" in done.err


def test_an_interrupt_ends_piped_input(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, "--set", "backend.interrupt_at=2", stdin="hi\nthere\n")
    assert (done.status, done.out) == (130, "He\n")


def test_input_that_is_no_text(genkit: Any, scripted: Path) -> None:
    done = genkit("chat", "-r", scripted, stdin=b"hi\n\xff\n")
    assert (done.status, done.out) == (1, "Hello.\n")
    assert "not UTF-8" in done.err


class Keyboard:
    """Answers `input()`, line by line; an exception is raised."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = list(lines)

    def __call__(self, prompt: str = "") -> str:
        line = self.lines.pop(0) if self.lines else EOFError
        if isinstance(line, str):
            return line
        raise line


@pytest.mark.parametrize(
    ("option", "answer", "said"),
    [
        ("backend.interrupt_at=4", "Hell\n", "[interrupted]"),
        ("backend.interrupt_at=0", "", "[interrupted; the message was withdrawn]"),
        ("backend.fail_at=4", "Hell\n", "error: "),
    ],
)
def test_a_session_survives_what_ends_an_answer(
    genkit: Any,
    scripted: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    answer: str,
    said: str,
) -> None:
    monkeypatch.setattr("builtins.input", Keyboard("one", KeyboardInterrupt, " ", "two"))
    done = genkit("chat", "-r", scripted, "--set", option, terminal=True)
    assert (done.status, done.out) == (0, answer * 2)
    assert done.err.count(said) == 2
    assert "Ctrl-D or /exit ends." in done.err
    assert "Traceback" not in done.err
