"""A part that goes through a history, as it would in the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from genkit.core.contracts import name_of
from genkit.core.loop import keep_rows
from genkit.core.state import GenerationState
from genkit.errors import FAILURES
from genkit.testing.laws.history import History

Kind = Literal["logits_processor", "sampler", "stop_criterion"]
"""The kinds of part that go through histories."""


class PartFailed(Exception):
    """A part raised, or returned what nothing can be done with. Laws turn it into `LawBroken`.

    Its cause is what the part raised; None if it raised nothing.
    """


class Rehearsal:
    """A part bound for the rows of a history.

    The tokens are those of the history, whatever the part answers, so that its answers in two
    rehearsals can be compared.

    Args:
        kind: how it is called: before the token of a step is appended, or after it.
        part: a component or a plain callable.
        history: what happens.

    Attributes:
        bound: the callable; for a part that does nothing in this run, one that does nothing.
        state: the tokens so far.
        step: which step is next.
        given: the logits of the last step.

    Raises:
        PartFailed: the part cannot be bound.
    """

    def __init__(self, kind: Kind, part: Any, history: History) -> None:
        self.kind = kind
        self.history = history
        self.state: GenerationState = history.state()
        self.step = 0
        self.given = history.logits(0)
        self.bound = bind(kind, part, history)

    def go(self, given: torch.Tensor | None = None) -> torch.Tensor:
        """One step; the part's answer.

        Args:
            given: logits in place of those of the history.

        Raises:
            PartFailed: the part raised, or its answer has the wrong shape.
        """
        if self.kind == "stop_criterion":
            self._append()
            return self._call(self.state)
        self.given = self.history.logits(self.step) if given is None else given
        answer = self._call(self.state, self.given)
        self._append()
        return answer

    def keep(self, indices: Sequence[int]) -> None:
        """Go on with these rows only, in this order; a row may be taken twice."""
        keep_rows(indices, self.state, self.bound)
        self.history = self.history.of([self.history.rows[i] for i in indices])

    def rewind(self, num_steps: int, history: History) -> None:
        """Take back the last steps, and go on with what happens in another history."""
        self.step -= num_steps
        try:
            self.bound.rewind(num_steps)
        except FAILURES as error:
            what = f"raised {_text(error)} in `rewind({num_steps})`"
            raise PartFailed(what + _hint(error, history)) from error
        self.history, self.state = history, history.state(self.step)

    def _append(self) -> None:
        self.state.append(self.history.next_ids(self.step), self.history.logits(self.step))
        self.step += 1

    def _call(self, *arguments: Any) -> torch.Tensor:
        step = self.step - (self.kind == "stop_criterion")
        try:
            answer = self.bound(*arguments)
        except FAILURES as error:
            what = f"step {step}: raised {_text(error)}"
            raise PartFailed(what + _hint(error, self.history)) from error
        if not isinstance(answer, torch.Tensor):
            found = None if answer is None else type(answer).__name__
            raise PartFailed(f"step {step}: returned {found}, not a tensor")
        batch = len(self.state)
        expected = (batch, *self.given.shape[1:]) if self.kind == "logits_processor" else (batch,)
        if answer.shape != expected:
            raise PartFailed(
                f"step {step}: returned shape {list(answer.shape)}, not {list(expected)}"
            )
        return answer


def bind(kind: Kind, part: Any, history: History) -> Any:
    """The callable of a part for the rows of a history.

    Raises:
        PartFailed: it refuses, or raises.
    """
    if getattr(part, "bind", None) is None:
        return part
    try:
        bound = part.bind(history.run(name_of(part)))
    except FAILURES as error:
        raise PartFailed(f"raised {_text(error)} in `bind`{_hint(error, history)}") from error
    if bound is not None:
        return bound
    if kind == "sampler":
        raise PartFailed("does nothing in this run; a run needs its sampler")
    return _Idle()


def play(kind: Kind, part: Any, history: History) -> list[torch.Tensor]:
    """The answers of a part to a whole history, one a step."""
    rehearsal = Rehearsal(kind, part, history)
    return [rehearsal.go() for _ in range(history.num_steps)]


class _Idle:
    """Stands for a part that does nothing in this run."""

    def __call__(self, state: GenerationState, logits: torch.Tensor | None = None) -> torch.Tensor:
        return state.finished if logits is None else logits

    def reorder(self, indices: Sequence[int]) -> None:
        """It holds nothing of a row."""


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _hint(error: BaseException, history: History) -> str:
    """What is likely meant where a part takes the tokenizer that there is not for one."""
    if history.tokenizer is not None or "NoneType" not in str(error):
        return ""
    return (
        "; the law ran it without a tokenizer (`run.tokenizer` is None): a part that needs one "
        "raises UnsupportedError in `bind`, and is then tried with one"
    )
