"""Every built-in processor keeps the laws, and each law catches a part that breaks it."""

import math
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr

from genkit.components.base import LogitsProcessor
from genkit.components.processors import MinP, RepetitionPenalty, Temperature, TopK, TopP
from genkit.core.contracts import name_of
from genkit.kit import Kit
from genkit.testing import LawBroken, ScriptedModel, TinyModel, check_logits_processor
from genkit.testing.laws.history import History, Row
from genkit.testing.laws.processor import PROCESSOR_LAWS

BUILT_IN = [
    Temperature(temperature=0.7),
    TopK(k=3),
    TopP(p=0.8),
    MinP(min_p=0.2),
    RepetitionPenalty(penalty=1.3),
]


def test_every_registered_processor_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("logits_processor")}
    assert {part.type for part in BUILT_IN} == registered


@pytest.mark.parametrize("part", BUILT_IN, ids=lambda part: part.type)
def test_built_in_processors_keep_the_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part)


@pytest.mark.parametrize(
    "part", [Temperature(temperature=30), TopK(k=1), TopP(p=0), MinP(min_p=0), MinP(min_p=1),
             RepetitionPenalty(penalty=1), RepetitionPenalty(penalty=0.5), TopK(k=99)], ids=repr
)  # fmt: skip
def test_at_the_ends_of_their_ranges_too(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=25)


# Parts that break one law each, as functions where they hold no state.


def writes_in_place(state, logits):
    return logits.div_(2)


def writes_through_data(state, logits):
    logits.data[:, 0] = 0.0
    return logits.clone()


def writes_through_numpy(state, logits):
    np.negative(logits.numpy(), out=logits.numpy())
    return logits.clone()


def writes_into_the_state(state, logits):
    state.finished[0] = True
    return logits


def forbids_with_the_least_float(state, logits):
    return torch.where(logits < logits.amax(-1, True), torch.finfo(logits.dtype).min, logits)


def forbids_with_minus_ten_thousand(state, logits):
    return logits.masked_fill(logits < logits.amax(-1, True), -1e6)


def gives_nan(state, logits):
    return logits * math.nan


def gives_float32(state, logits):
    return logits.float()


def gives_one_row(state, logits):
    return logits[0]


def allows_what_was_forbidden(state, logits):
    return torch.where(logits.isfinite().any(-1, True), logits.clamp(min=-9.0), logits)


def forbids_everything(state, logits):
    return torch.full_like(logits, -math.inf)


def normalises_the_batch(state, logits):
    finite = logits[logits.isfinite()]
    return logits - finite.sum() / 3


def reads_the_first_row(state, logits):
    return logits.index_add(1, state.row(0), torch.ones_like(logits).T[: len(state.row(0))].T)


def counts_padding(state, logits):
    return logits * (1 + state.token_ids.shape[1])


def reads_padding(state, logits):
    zeros = (state.token_ids == 0).sum(-1, keepdim=True)
    return logits + zeros


def favours_the_second_row(state, logits):
    return logits + torch.arange(len(state))[:, None]


def reads_the_global_generator(state, logits):
    return logits * (1 + torch.rand(1, dtype=logits.dtype))


def flattens_memory(state, logits):
    return (logits.view(-1) / 2).view(logits.shape)


def raises(state, logits):
    raise IndexError("oops")


class Promises(LogitsProcessor):
    """Says that it keeps the most probable token, and does not."""

    type: Literal["promises"] = "promises"
    keeps_argmax: ClassVar[bool] = True

    def __call__(self, state, logits):
        return logits.neg().masked_fill(logits == -math.inf, -math.inf)


class Remembers(LogitsProcessor):
    """Its spec holds the state of runs."""

    type: Literal["remembers"] = "remembers"
    _calls: int = PrivateAttr(0)

    def __call__(self, state, logits):
        self._calls += 1
        return logits + self._calls


class Counts(LogitsProcessor):
    """The base of some that count how often each row has got token 3."""

    type: Literal["counts"] = "counts"

    def bind(self, run):
        return self.Bound(len(run))

    class Bound:
        def __init__(self, size):
            self.counts = [0] * size
            self.length = None

        def __call__(self, state, logits):
            if self.length is not None:
                for i, token_id in enumerate(state.last_ids.tolist()):
                    self.counts[i] += token_id == 3
            self.length = state.length
            return logits + torch.tensor(self.counts)[:, None]

        def reorder(self, indices):
            self.counts = [self.counts[i] for i in indices]


class IgnoresReorder(Counts):
    """It keeps the counts in the old order."""

    class Bound(Counts.Bound):
        def reorder(self, indices):
            self.counts = (self.counts * 2)[: len(indices)]


class SharesCopies(Counts):
    """Two copies of a row share one list."""

    def bind(self, run):
        return self.Bound(run)

    class Bound:
        def __init__(self, run):
            self.seen = [[] for _ in run.prompts]
            self.first = True

        def __call__(self, state, logits):
            if not self.first:
                for seen, token_id in zip(self.seen, state.last_ids.tolist(), strict=True):
                    seen.append(token_id)
            self.first = False
            sums = torch.tensor([float(sum(seen)) for seen in self.seen], dtype=logits.dtype)
            return logits + sums[:, None]

        def reorder(self, indices):
            self.seen = [self.seen[i] for i in indices]


class HasNoReorder(Counts):
    """It can serve one row only."""

    class Bound:
        def __init__(self, size):
            pass

        def __call__(self, state, logits):
            return logits


class Rewinds(Counts):
    """Its rewind is right."""

    class Bound(Counts.Bound):
        def __init__(self, size):
            super().__init__(size)
            self.past = []

        def __call__(self, state, logits):
            answer = super().__call__(state, logits)
            self.past.append(self.counts.copy())
            return answer

        def reorder(self, indices):
            super().reorder(indices)
            self.past = [[counts[i] for i in indices] for counts in self.past]

        def rewind(self, num_steps):
            del self.past[len(self.past) - num_steps :]
            # What comes next has seen the tokens of the calls that are left, and one more.
            self.counts = self.past[-1].copy() if self.past else [0] * len(self.counts)
            self.length = 0 if self.past else None


class ForgetsToRewind(Counts):
    """It takes back nothing."""

    class Bound(Counts.Bound):
        def rewind(self, num_steps):
            pass


_shared = {"step": 0}


class MixesRuns(LogitsProcessor):
    """Each run begins to count anew, with the counter of all runs."""

    type: Literal["mixes_runs"] = "mixes_runs"

    def bind(self, run):
        _shared["step"] = 0
        return self.Bound()

    class Bound:
        def __call__(self, state, logits):
            _shared["step"] += 1
            return logits + _shared["step"]

        def reorder(self, indices):
            pass


class Unpicklable(LogitsProcessor):
    """It cannot be pickled."""

    type: Literal["unpicklable"] = "unpicklable"

    def __call__(self, state, logits):
        return logits

    def __reduce__(self):
        raise TypeError("no")


class Reuses(LogitsProcessor):
    """It answers with the same tensor in every step."""

    type: Literal["reuses"] = "reuses"

    def bind(self, run):
        return self.Bound()

    class Bound:
        answer = None

        def __call__(self, state, logits):
            if self.answer is None or self.answer.dtype != logits.dtype:
                self.answer = torch.empty_like(logits)
            return self.answer.resize_(logits.shape).copy_(logits)

        def reorder(self, indices):
            self.answer = None


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        (writes_in_place, "leaves_what_it_is_given"),
        (writes_through_data, "leaves_what_it_is_given"),
        (writes_through_numpy, "leaves_what_it_is_given"),
        (writes_into_the_state, "leaves_what_it_is_given"),
        (Reuses(), "leaves_what_it_is_given"),
        (forbids_with_the_least_float, "forbids_with_minus_infinity"),
        (forbids_with_minus_ten_thousand, "forbids_with_minus_infinity"),
        (gives_nan, "forbids_with_minus_infinity"),
        (gives_float32, "keeps_shape_dtype_and_device"),
        (gives_one_row, "keeps_shape_dtype_and_device"),
        (raises, "keeps_shape_dtype_and_device"),
        (allows_what_was_forbidden, "revives_nothing"),
        (forbids_everything, "empties_no_row"),
        (Promises(), "keeps_the_argmax_it_promises"),
        (Remembers(), "gives_the_same_again"),
        (normalises_the_batch, "does_not_depend_on_company"),
        (reads_the_first_row, "does_not_depend_on_company"),
        (favours_the_second_row, "does_not_depend_on_company"),
        (counts_padding, "does_not_depend_on_padding"),
        (reads_padding, "does_not_depend_on_padding"),
        (IgnoresReorder(), "follows_rows_that_leave"),
        (HasNoReorder(), "follows_rows_that_leave"),
        (SharesCopies(), "follows_rows_that_are_copied"),
        (ForgetsToRewind(), "rewinds"),
        (MixesRuns(), "keeps_runs_apart"),
        (flattens_memory, "reads_any_layout"),
        (reads_the_global_generator, "gives_the_same_again"),
        (Unpicklable(), "leaves_its_spec"),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_broken_part_is_caught_by_its_law(part, broken: str) -> None:
    with pytest.raises(LawBroken) as caught:
        check_logits_processor(part)
    assert caught.value.law == broken


@pytest.mark.parametrize("part", [Counts(), Rewinds()], ids=lambda part: type(part).__name__)
def test_the_sound_relatives_of_broken_parts_pass(part) -> None:
    check_logits_processor(part, max_examples=50)


class Forces(LogitsProcessor):
    """Forces token 2, whatever is forbidden."""

    type: Literal["forces"] = "forces"
    may_allow: ClassVar[bool] = True

    def __call__(self, state, logits):
        only = torch.full_like(logits, -math.inf)
        only[:, 2] = 0.0
        return only


class Gives(LogitsProcessor):
    """Forbids everything, and says so."""

    type: Literal["gives"] = "gives"
    may_empty: ClassVar[bool] = True

    def __call__(self, state, logits):
        return torch.full_like(logits, -math.inf)


@pytest.mark.parametrize("part", [Forces(), Gives()], ids=lambda part: part.type)
def test_what_a_class_admits_is_not_held_against_it(part) -> None:
    check_logits_processor(part, max_examples=50)


def test_the_message_names_law_part_and_place() -> None:
    history = History((Row((0,), (1,), torch.tensor([[1.0, 2.0, 3.0]])),))
    [empties] = [law for law in PROCESSOR_LAWS if law.__name__ == "empties_no_row"]
    with pytest.raises(LawBroken) as caught:
        empties(forbids_everything, history)
    assert str(caught.value) == (
        "'forbids_everything' breaks the law 'empties_no_row': "
        "row 0, step 0: all of 3 allowed tokens forbidden; see `may_empty`"
    )


def test_the_example_is_as_small_as_it_gets() -> None:
    with pytest.raises(LawBroken, match="row 0, step 0") as caught:
        check_logits_processor(forbids_everything)
    assert caught.value.evidence.startswith("row 0, step 0: all of 12 allowed tokens")


def test_laws_hold_on_the_run_of_a_model() -> None:
    model = TinyModel(vocab_size=40)
    history = History.recorded(model, [[5, 3], [7], [1, 2, 3, 4]], num_steps=3)
    assert history.logits(2).shape == (3, 40)
    assert history.next_ids(1).tolist() == history.logits(1).argmax(-1).tolist()
    for part in BUILT_IN:
        for law in PROCESSOR_LAWS:
            law(part, history)


def test_a_history_is_not_recorded_beyond_the_context() -> None:
    model = ScriptedModel.of_ids([1], 3, context_length=4)
    assert History.recorded(model, [[0, 0]], num_steps=2).num_steps == 2
    with pytest.raises(ValueError, match="the context ends after 2 of 3 steps"):
        History.recorded(model, [[0, 0]], num_steps=3)
