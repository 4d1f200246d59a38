"""Every built-in processor keeps the laws, and each law catches a part that breaks it."""

import itertools
import math
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr

from genkit import processors as p
from genkit.components.base import LogitsProcessor
from genkit.components.processors import MinP, RepetitionPenalty, Temperature, TopK, TopP
from genkit.components.samplers import Greedy
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


def first_six(row, token_ids):
    return range(6)


# Those whose own tests try the laws on more options, and at more length.
OTHERS = [
    p.AllowedTokens(token_ids=(1, 2, 5, 7)),
    p.BadWords(token_ids=[(3,), (2, 4)]),
    p.BeginSuppressTokens(token_ids=(3,)),
    p.Dry(multiplier=0.8, allowed_length=1, breakers=()),
    p.DynamicTemperature(low=0.5, high=2),
    p.Epsilon(epsilon=0.05),
    p.Eta(epsilon=0.05),
    p.ForcedBos(token_id=3),
    p.ForcedEos(),
    p.FrequencyPenalty(penalty=0.5),
    p.LengthDecay(start=1, factor=1.2),
    p.MinLength(limit=4),
    p.MinNewTokens(limit=2),
    p.NoRepeatNGram(n=2),
    p.PrefixAllowedTokens(function=first_six),
    p.PresencePenalty(penalty=0.5),
    p.PromptNoRepeatNGram(n=2),
    p.PromptRepetitionPenalty(penalty=1.3),
    p.RemoveInvalid(),
    p.Renormalize(),
    p.SequenceBias(sequences=[{"token_ids": (2, 4), "bias": 1.5}]),
    p.Smoothing(factor=0.2),
    p.SuppressTokens(token_ids=(3,)),
    p.TailFree(z=0.9),
    p.TokenBias(biases={3: 1.5}),
    p.TopA(a=0.2),
    p.TopH(h=0.6),
    p.TopNSigma(n=1.0),
    p.TypicalP(p=0.8),
    p.Watermark(scheme={"type": "green_list"}),
    p.Xtc(probability=0.5, threshold=0.1),
]


def test_every_registered_processor_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("logits_processor")}
    assert {part.type for part in (*BUILT_IN, *OTHERS)} == registered


@pytest.mark.parametrize("part", BUILT_IN, ids=lambda part: part.type)
def test_built_in_processors_keep_the_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part)


@pytest.mark.parametrize("part", OTHERS, ids=lambda part: part.type)
def test_others_keep_them_too(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=10)


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
    logits.data.mul_(2)
    return logits.clone()


def writes_through_numpy(state, logits):
    np.multiply(logits.numpy(), 2, out=logits.numpy())
    return logits.clone()


def writes_into_the_state(state, logits):
    state.finished[0] = True
    return logits


def forbids_with_the_least_float(state, logits):
    return torch.where(logits < logits.amax(-1, True), torch.finfo(logits.dtype).min, logits)


def forbids_with_minus_ten_thousand(state, logits):
    return logits.masked_fill(logits < logits.amax(-1, True), -1e6)


def forbids_one_token_with_a_floor(state, logits):
    return logits.index_fill(1, torch.tensor([3]), -1e9)


def lowers_one_token_out_of_sight(state, logits):
    """In float32 nothing is left of what the token had."""
    return logits.index_add(1, torch.tensor([3]), torch.full_like(logits[:, :1], -1e9))


def lowers_one_token_by_much(state, logits):
    """Sound: the token keeps its place among others lowered likewise."""
    return logits.index_add(1, torch.tensor([3]), torch.full_like(logits[:, :1], -2000.0))


def forbids_the_last_token(state, logits):
    return logits.scatter(-1, state.last_ids[:, None], -math.inf)


def forbids_what_is_complete(state, logits):
    """It empties a row of which nothing is forbidden yet."""
    return logits.masked_fill(logits.isfinite().all(-1, keepdim=True), -math.inf)


def gives_nothing(state, logits):
    pass


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


def scales_by_the_room_of_the_run(state, logits):
    return logits * (1 + 2 * ((state.nearest_end - state.length) % 2))


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


class Suppresses(LogitsProcessor):
    """Forbids some tokens, which may be all that are left."""

    type: Literal["suppresses"] = "suppresses"
    token_ids: tuple[int, ...]

    def __call__(self, state, logits):
        return logits.index_fill(1, torch.tensor(self.token_ids), -math.inf)


class Promises(LogitsProcessor):
    """Says that it keeps the most probable token, and does not."""

    type: Literal["promises"] = "promises"
    keeps_argmax: ClassVar[bool] = True

    def __call__(self, state, logits):
        return logits.neg().masked_fill(logits == -math.inf, -math.inf)


class LooksAtIds(LogitsProcessor):
    """Says that it looks at nothing but the logits of allowed tokens, and looks at their ids."""

    type: Literal["looks_at_ids"] = "looks_at_ids"
    acts_on_allowed: ClassVar[bool] = True

    def __call__(self, state, logits):
        return logits + torch.arange(logits.shape[-1])


class LooksAtTheSize(LooksAtIds):
    """It looks at how many tokens there are, forbidden ones too."""

    def __call__(self, state, logits):
        return logits / logits.shape[-1]


class NarrowsOnly(LogitsProcessor):
    """It finds candidates, and does not say that it looks at nothing else."""

    type: Literal["narrows_only"] = "narrows_only"

    def __call__(self, state, logits):
        return logits

    def narrow(self, rows):
        return None


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
        (writes_in_place, "leaves what it is given"),
        (writes_through_data, "leaves what it is given"),
        (writes_through_numpy, "leaves what it is given"),
        (writes_into_the_state, "leaves what it is given"),
        (Reuses(), "leaves what it is given"),
        (forbids_with_the_least_float, "forbids with minus infinity"),
        (forbids_with_minus_ten_thousand, "forbids with minus infinity"),
        (gives_nan, "forbids with minus infinity"),
        (gives_float32, "keeps shape dtype and device"),
        (gives_one_row, "keeps shape dtype and device"),
        (gives_nothing, "keeps shape dtype and device"),
        (raises, "runs without an error"),
        (forbids_one_token_with_a_floor, "forbids with minus infinity"),
        (lowers_one_token_out_of_sight, "forbids with minus infinity"),
        (forbids_the_last_token, "empties no row"),
        (Suppresses(token_ids=(4, 7)), "empties no row"),
        (allows_what_was_forbidden, "revives nothing"),
        (forbids_everything, "empties no row"),
        (Promises(), "keeps the argmax it promises"),
        (LooksAtIds(), "gives the same to allowed tokens alone"),
        (LooksAtTheSize(), "gives the same to allowed tokens alone"),
        (NarrowsOnly(), "gives the same to allowed tokens alone"),
        (Remembers(), "gives the same again"),
        (normalises_the_batch, "does not depend on company"),
        (reads_the_first_row, "does not depend on company"),
        (scales_by_the_room_of_the_run, "does not depend on company"),
        (favours_the_second_row, "does not depend on company"),
        (counts_padding, "does not depend on padding"),
        (reads_padding, "does not depend on padding"),
        (IgnoresReorder(), "follows rows that leave"),
        (HasNoReorder(), "follows rows that leave"),
        (SharesCopies(), "follows rows that are copied"),
        (ForgetsToRewind(), "rewinds"),
        (MixesRuns(), "keeps runs apart"),
        (flattens_memory, "reads any layout"),
        (reads_the_global_generator, "gives the same again"),
        (Unpicklable(), "leaves its spec"),
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


def test_a_function_may_admit_it_too() -> None:
    def admits(state, logits):
        return forbids_the_last_token(state, logits)

    admits.may_empty = True
    check_logits_processor(admits, max_examples=20)


def test_a_large_bias_is_no_floor() -> None:
    check_logits_processor(lowers_one_token_by_much, max_examples=50)


@pytest.mark.parametrize(
    "part", [forbids_the_last_token, Suppresses(token_ids=(4, 7))], ids=["function", "component"]
)
def test_a_row_with_one_allowed_token_needs_no_luck(part) -> None:
    with pytest.raises(LawBroken, match="all of [12] allowed tokens forbidden") as caught:
        check_logits_processor(part, max_examples=1)
    assert caught.value.law == "empties no row"


def test_the_laws_that_were_tried_are_returned() -> None:
    laws = check_logits_processor(TopK(k=3), max_examples=1)
    assert laws == list(PROCESSOR_LAWS)
    assert (laws[4].name, repr(laws[4])) == ("empties no row", "PartLaw('empties no row')")
    assert laws[4].statement.startswith("A row that has allowed tokens keeps one")


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (TopK, r"^TopK is a class; give an object: TopK\(\)"),
        (Greedy(), "^'greedy' is a sampler, and a logits_processor is checked here"),
        (3, "^3 is no logits_processor: it is neither a callable"),
    ],
    ids=["class", "other kind", "no callable"],
)
def test_what_is_no_processor_is_refused_before_any_law(part, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_logits_processor(part)


def test_what_a_part_raises_is_named_with_its_step() -> None:
    with pytest.raises(LawBroken) as caught:
        check_logits_processor(raises)
    assert caught.value.evidence == "step 0: raised IndexError: oops"
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_part_that_breaks_a_law_only_once_is_named_all_the_same() -> None:
    served = []

    def breaks_once(state, logits):
        if len(state) == 3 and not served:
            served.append(True)
            return logits * 0.5
        return logits

    with pytest.raises(LawBroken, match="not repeatable: .* did not break the law again") as caught:
        check_logits_processor(breaks_once)
    assert caught.value.law == "gives the same again"


def test_a_part_that_goes_by_the_clock_is_named() -> None:
    ticks = itertools.count()
    with pytest.raises(LawBroken) as caught:
        check_logits_processor(lambda state, logits: logits * (1 + next(ticks)))
    assert caught.value.law == "gives the same again"


def test_the_message_names_law_part_and_place() -> None:
    history = History((Row((0,), (1,), torch.tensor([[1.0, 2.0, 3.0]])),))
    [empties] = [law for law in PROCESSOR_LAWS if law.name == "empties no row"]
    with pytest.raises(LawBroken) as caught:
        empties(forbids_everything, history)
    assert str(caught.value) == (
        "'forbids_everything' breaks the law 'empties no row': row 0, step 0: all of 3 allowed "
        "tokens forbidden; a part that is meant to do that has `may_empty = True`"
    )


def test_the_example_is_as_small_as_it_gets() -> None:
    with pytest.raises(LawBroken, match="row 0, step 0") as caught:
        check_logits_processor(forbids_what_is_complete)
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
