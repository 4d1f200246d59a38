"""The laws that processors, samplers and stop criteria have in common.

A law is a `PartLaw`, ``(part, history) -> None``, that raises `LawBroken`. It needs neither
Hypothesis nor a model: the history may be drawn, or recorded from a real model's run.

What a row gets may depend on its own prompt, tokens, logits, seed and step, and on nothing else.
Most laws here say that of one more thing: company, order, padding, rows that leave, other runs,
threads, memory layout, global random generators.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from genkit.components.base import Component
from genkit.errors import FAILURES
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.rehearsal import Kind, PartFailed, Rehearsal, bind, play

Evidence = Generator[str, None, Any]
"""What speaks against a part; the first piece is enough.

It returns why the law says nothing of the part, where it does not: mostly that the part has not
promised what it is about.
"""

_THREADS = 4
_PADDING = 3


class PartLaw:
    """The law that a function finds no evidence against.

    Args:
        find: ``(part, history, *given) -> Evidence``. Its name, with blanks, is that of the law,
            and the first line of its docstring the statement.
        given: what `find` takes besides.

    Attributes:
        name: short, as messages and `genkit verify` call it.
        statement: what holds, in one sentence.
    """

    def __init__(self, find: Callable[..., Evidence], *given: Any) -> None:
        self.name = find.__name__.replace("_", " ")
        self.statement = (inspect.getdoc(find) or "").partition("\n")[0]
        self._find = find
        self._given = given

    def __call__(self, part: Any, history: History) -> str:
        """Try the law.

        Returns:
            Why the law says nothing of the part in this history; empty if it holds.

        Raises:
            LawBroken: the part does not keep it.
        """
        try:
            evidence = next(self._find(part, history, *self._given))
        except StopIteration as end:
            return end.value or ""
        except PartFailed as error:
            raise LawBroken(self.name, part, str(error)) from error.__cause__
        raise LawBroken(self.name, part, evidence)

    def __repr__(self) -> str:
        return f"PartLaw({self.name!r})"


def not_promised(what: str) -> str:
    """Why a law says nothing of a part that does without something, or takes leave to."""
    return f"not promised: {what}"


def shared_laws(kind: Kind) -> tuple[PartLaw, ...]:
    """The laws of this module, for one kind of part; the one that it runs at all stands apart."""
    return tuple(PartLaw(find, kind) for find in _SHARED)


class _Plays:
    """Remembers the last plays, so that the laws of one part need not repeat them."""

    def __init__(self) -> None:
        self._held = threading.local()

    def __call__(self, kind: Kind, part: Any, history: History) -> list[torch.Tensor]:
        """What `play` gives, or gave in this thread for the same two objects."""
        part_and_history = getattr(self._held, "of", (None, None))
        if part_and_history[0] is not part or part_and_history[1] is not history:
            self._held.answers = play(kind, part, history)
            self._held.of = part, history
        answers: list[torch.Tensor] = self._held.answers
        return answers


played = _Plays()
"""``played(kind, part, history)``: what the part gives, as it gave it when it was first asked."""


def runs_without_an_error(part: Any, history: History, kind: Kind) -> Evidence:
    """It can be bound for a run, and raises in none of its steps."""
    try:
        played(kind, part, history)
    except PartFailed as failed:
        if failed.__cause__ is not None:  # what it returned is the matter of other laws
            raise
    yield from ()


def leaves_what_it_is_given(part: Any, history: History, kind: Kind) -> Evidence:
    """It writes neither into its logits, nor into the state, nor into an earlier answer.

    Copies are compared bit for bit, so that no way of writing goes unseen.
    """
    rehearsal, untouched = Rehearsal(kind, part, history), history.state()
    watched: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    for step in range(history.num_steps):
        given = history.logits(step)
        watched.append((f"the logits given in step {step}", given, given.clone()))
        answer = rehearsal.go(given)
        for what, tensor, before in watched:
            if not same_bits(tensor, before):
                yield f"step {step}: it wrote into {what}"
        watched.append((f"its answer of step {step}", answer, answer.clone()))
        untouched.append(history.next_ids(step), history.logits(step))
        for name in _FACTS:
            if not same_bits(getattr(untouched, name), getattr(rehearsal.state, name)):
                yield f"step {step}: it changed `state.{name}`"
        if rehearsal.state.rng.step != step + 1:
            yield f"step {step}: it moved `state.rng`"


_FACTS = (
    *("token_ids", "starts", "prompt_ends", "ends", "rows"),
    *("last_ids", "last_logits", "finished"),
)


def gives_the_same_again(part: Any, history: History, kind: Kind) -> Evidence:
    """A second run of the same spec gives the same, bit for bit."""
    second = play(kind, part, history)
    yield from _different(played(kind, part, history), second, "in a second run", tolerance=0)


def does_not_depend_on_company(part: Any, history: History, kind: Kind) -> Evidence:
    """A row gets alone what it gets in a batch."""
    expected = played(kind, part, history)
    in_company = history.of([*history.rows, history.rows[0].another()])
    yield from _different(expected, play(kind, part, in_company), "with one more row")
    if len(history) == 1:
        return
    for i, row in enumerate(history.rows):
        alone = play(kind, part, history.of([row]))
        yield from _different(expected, alone, "alone, against a batch", {i: 0})


def does_not_depend_on_order(part: Any, history: History, kind: Kind) -> Evidence:
    """Rows in another order get the same, in that order."""
    backwards = history.of(history.rows[::-1])
    how = "with the rows in another order"
    expected, found = played(kind, part, history), play(kind, part, backwards)
    yield from _different(expected, found, how, _reversed(len(history)))


def does_not_depend_on_padding(part: Any, history: History, kind: Kind) -> Evidence:
    """A longer row beside them, and with it more padding, changes nothing for the others."""
    padded = play(kind, part, history.of([*history.rows, _longer_row(history)]))
    how = f"with {_PADDING} or more columns of padding"
    yield from _different(played(kind, part, history), padded, how)


def follows_rows_that_leave(part: Any, history: History, kind: Kind) -> Evidence:
    """Rows that have left, and the new order of those that stay, change nothing for these."""
    bound = bind(kind, part, history)
    if bound is not part and not hasattr(bound, "reorder"):
        yield "`bind` makes a new object without `reorder(indices)`, so batches are refused"
    expected = played(kind, part, history)
    places = _reversed(len(history))
    for left in range(1, history.num_steps):
        rehearsal = Rehearsal(kind, part, history.of([_longer_row(history), *history.rows]))
        for _ in range(left):
            rehearsal.go()
        rehearsal.keep([1 + i for i in places])
        answers = [rehearsal.go() for _ in range(left, history.num_steps)]
        how = f"after a row has left in step {left - 1}"
        yield from _different(expected[left:], answers, how, places, first_step=left)


def follows_rows_that_are_copied(part: Any, history: History, kind: Kind) -> Evidence:
    """A row taken twice goes on as two rows that know nothing of each other."""
    first, step = history.rows[0], history.num_steps // 2
    if step == 0:
        return "the run is too short for it"
    twins = history.of([first, first.then(first.another(), step)])
    rehearsal = Rehearsal(kind, part, history)
    for _ in range(step):
        rehearsal.go()
    rehearsal.keep([0, 0])
    rehearsal.history = twins
    answers = [rehearsal.go() for _ in range(step, history.num_steps)]
    how = f"as one of two copies made after step {step - 1}"
    yield from _different(play(kind, part, twins)[step:], answers, how, first_step=step)


def rewinds(part: Any, history: History, kind: Kind) -> Evidence:
    """After `rewind(n)`, where it has that, the last n tokens have never been."""
    for step in range(history.num_steps):
        other = history.of([row.then(row.another(), step) for row in history.rows])
        rehearsal = Rehearsal(kind, part, history)
        if not hasattr(rehearsal.bound, "rewind"):
            return not_promised("it has no `rewind`")
        for _ in range(history.num_steps):
            rehearsal.go()
        count = history.num_steps - step
        rehearsal.rewind(count, other)
        answers = [rehearsal.go() for _ in range(step, history.num_steps)]
        how = f"after `rewind({count})`"
        yield from _different(play(kind, part, other)[step:], answers, how, first_step=step)


def keeps_runs_apart(part: Any, history: History, kind: Kind) -> Evidence:
    """Two runs at once, step by step in turn, give what each gives alone."""
    histories = [history, history.of([row.another() for row in history.rows])]
    alone = [played(kind, part, history), play(kind, part, histories[1])]
    rehearsals = [Rehearsal(kind, part, each) for each in histories]
    answers = [[rehearsal.go() for rehearsal in rehearsals] for _ in range(history.num_steps)]
    for expected, found in zip(alone, zip(*answers, strict=True), strict=True):
        yield from _different(expected, found, "while another run goes on")


def serves_threads(part: Any, history: History, kind: Kind) -> Evidence:
    """Runs of one spec in several threads give what each gives alone."""
    other = history.of([row.another() for row in history.rows])
    alone = [played(kind, part, history), play(kind, part, other)] * (_THREADS // 2)
    histories = [history, other] * (_THREADS // 2)
    answers = _pool().map(lambda each: play(kind, part, each), histories)
    for expected, found in zip(alone, answers, strict=True):
        yield from _different(expected, found, f"in one of {_THREADS} threads")


def reads_any_layout(part: Any, history: History, kind: Kind) -> Evidence:
    """Logits that are a view, with rows far apart in memory, give the same."""
    if kind == "stop_criterion":
        return "it is given no logits"
    rehearsal = Rehearsal(kind, part, history)
    steps = [history.logits(step) for step in range(history.num_steps)]
    answers = [rehearsal.go(torch.stack((given, given), 1).select(1, 0)) for given in steps]
    yield from _different(played(kind, part, history), answers, "for logits that are a view")


def uses_no_global_generator(part: Any, history: History, kind: Kind) -> Evidence:
    """It neither reads nor moves the generators of torch, numpy and Python."""
    with global_generators_kept():
        before = _global_states()
        expected = play(kind, part, history)
        for name, old, new in zip(_GENERATORS, before, _global_states(), strict=True):
            if old != new:
                yield f"it moved the global generator of {name}"
        _seed_global_generators(1)
        answers = play(kind, part, history)
        yield from _different(expected, answers, "after the global generators were seeded")


def leaves_its_spec(part: Any, history: History, kind: Kind) -> Evidence:
    """A component is the same after a run, and its copies and its pickle are worth as much."""
    if not isinstance(part, Component):
        return "it is no component, and has no spec"
    before = part.model_copy(deep=True)
    expected = play(kind, part, history)
    if part != before or part.model_dump() != before.model_dump():
        yield f"a run changed it from {before!r} to {part!r}"
    for how, duplicate in (("deepcopy", copy.deepcopy), ("pickle", _pickled)):
        try:
            twin = duplicate(part)
        except FAILURES as error:
            yield f"it cannot be copied by {how}: {error}"
            return
        if twin != part:
            yield f"its copy made by {how} is not equal to it: {twin!r}"
    yield from _different(expected, play(kind, twin, history), "from its copy by pickle")


_SHARED = (
    leaves_what_it_is_given,
    gives_the_same_again,
    does_not_depend_on_company,
    does_not_depend_on_order,
    does_not_depend_on_padding,
    follows_rows_that_leave,
    follows_rows_that_are_copied,
    rewinds,
    keeps_runs_apart,
    reads_any_layout,
    uses_no_global_generator,
    leaves_its_spec,
    serves_threads,
)


def difference(expected: torch.Tensor, found: torch.Tensor, tolerance: float) -> str | None:
    """Where two answers for one row differ, in words; None if they do not.

    Args:
        expected, found: logits `[vocab]`, or one id or mark `[]`.
        tolerance: relative, for finite logits; what is forbidden must be the same.
    """
    if same_bits(expected, found):
        return None
    if expected.dtype != found.dtype:
        return f"{found.dtype}, not {expected.dtype}"
    same = (expected == found) | (expected.isnan() & found.isnan())
    if tolerance and expected.is_floating_point():
        both = expected.isfinite() & found.isfinite()
        same |= both & ((expected - found).abs() <= tolerance * (1 + expected.abs()))
    if bool(same.all()):
        return None
    if not expected.ndim:
        return f"{found.item()}, not {expected.item()}"
    token_id = int((~same).nonzero()[0])
    return f"token {token_id} has {found[token_id].item()}, not {expected[token_id].item()}"


def tolerance_of(answer: torch.Tensor) -> float:
    """What `difference` is to allow for rounding, in the precision of an answer."""
    return 1e-12 if answer.dtype == torch.float64 else 1e-5


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same, NaN equal to itself and -0 not equal to 0."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point():
        integers = torch.int64 if one.dtype == torch.float64 else torch.int32
        one, other = one.contiguous().view(integers), other.contiguous().view(integers)
    return torch.equal(one, other)


def _different(
    expected: Sequence[torch.Tensor],
    found: Sequence[torch.Tensor],
    how: str,
    places: Mapping[int, int] | None = None,
    *,
    first_step: int = 0,
    tolerance: float | None = None,
) -> Evidence:
    """Where the answers of one play differ from those of another.

    Args:
        expected, found: the answers, one a step.
        how: in what circumstances `found` was given.
        places: which row of `found` each row of `expected` is; by default the same.
        first_step: the step of the first answers.
        tolerance: by default what the precision of the logits allows.
    """
    for step, (one, other) in enumerate(zip(expected, found, strict=True), first_step):
        allowed = tolerance_of(one) if tolerance is None else tolerance
        for i, place in (places or {i: i for i in range(len(one))}).items():
            what = difference(one[i], other[place], allowed)
            if what is not None:
                yield f"row {i}, step {step}, {how}: {what}"


def _reversed(size: int) -> dict[int, int]:
    """The last row first: the place of each row."""
    return {i: size - 1 - i for i in reversed(range(size))}


def _longer_row(history: History) -> Row:
    """A row whose prompt is longer than all of theirs."""
    longest = max(len(row.prompt) for row in history.rows)
    first = history.rows[0]
    return first.another(extra=longest - len(first.prompt) + _PADDING)


def _pickled(part: Any) -> Any:
    return pickle.loads(pickle.dumps(part))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "laws")


_GENERATORS = ("torch", "numpy", "Python")


def _global_states() -> list[bytes]:
    """What the next numbers of the global generators depend on."""
    states = torch.get_rng_state().numpy(), np.random.get_state(), random.getstate()
    return [pickle.dumps(state) for state in states]


def _seed_global_generators(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@contextmanager
def global_generators_kept() -> Iterator[None]:
    """Seeds the global generators, and puts them back where they were afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        _seed_global_generators(0)
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
