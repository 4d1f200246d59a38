"""Broken doubles, each with one bug that people have met, and the law that catches it.

A double that is right stands beside each kind, so that it is the bug which is caught.
"""

import random
import re
from typing import ClassVar, Literal

import pytest
import torch

from genkit import caches, decoders, samplers, stopping
from genkit.components.caches.wrapped import WrappedCache
from genkit.core.guard import unguarded
from genkit.core.loop import autoregressive
from genkit.errors import UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import (
    LAWS,
    Case,
    LawBroken,
    TinyModel,
    check_backend,
    check_cache_manager,
)
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.tiny_model import TinyCache
from genkit.testing.verification.verify import verify

EVERY_LAW = {law.name: law for law in (*LAWS, *MODEL_LAWS, *DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP)}
ENDS = range(0, 260, 9)


def make_cases(count: int = 12) -> list[Case]:
    """Three prompts of up to nine ids each, of which two begin alike."""
    choices = random.Random(5)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(choices.randrange(260) for _ in range(n))

    cases = []
    for choice in range(count):
        stem = ids(choices.randint(1, 5))
        prompts = (stem + ids(choices.randint(1, 4)), stem + ids(1), ids(choices.randint(1, 6)))
        cases.append(Case(prompts, (choice, 7, 2**63 + choice), 5, choice))
    return cases


CASES = make_cases()


def judge(law: str, model=None, num_cases=12, **parts):
    parts.setdefault("stop_criteria", [stopping.Eos()])
    model = make_model() if model is None else model
    return EVERY_LAW[law].judge(Pipeline(model, **parts), CASES[:num_cases])


def make_model(kind=TinyModel, **options):
    return kind(dtype=torch.float64, eos_token_ids=ENDS, **options)


# Models


class WiderWindowWhenCached(TinyModel):
    def last(self, input_ids, cache, n):
        self.windows = (3 if cache.length == 0 else 4,) * self.num_layers
        return super().last(input_ids, cache, n)


class CountsPads(TinyModel):
    def _positions(self, columns, starts):
        return columns.expand(len(starts), -1)


class StartsFromWidths(TinyModel):
    """The tokenizer has padded already, so all rows look equally wide."""

    def last(self, input_ids, cache, n):
        return super().last(input_ids, NoStarts(cache, cache.supports), n)


class NoStarts(WrappedCache):
    @property
    def starts(self):
        return torch.zeros_like(self.inner.starts)


class SeesWholeBlock(TinyModel):
    """Claims `block`, and forgets that the tokens of a block must not see each other's future."""

    def _sees(self, i, distance):
        _, queries, keys = distance.shape
        seen = super()._sees(i, distance)
        return torch.ones_like(seen) if 1 < queries < keys else seen


class RemembersItsRun(TinyModel):
    """The number of columns fed is kept on the model and not in the cache."""

    def last(self, input_ids, cache, n):
        self.num_fed = input_ids.shape[1] + (self.num_fed if cache.length else 0)
        return super().last(input_ids, cache, n)

    def _positions(self, columns, starts):
        return super()._positions(self.num_fed - len(columns) + columns - columns[0], starts)


class AdvancesFirst(TinyModel):
    def last(self, input_ids, cache, n):
        before = cache.length
        cache.open()
        cache.advance(input_ids.shape[1])
        return super().last(input_ids, AdvancedBefore(cache, before), n)


class AdvancedBefore:
    def __init__(self, inner, length):
        self.inner, self.length = inner, length

    def __getattr__(self, attribute):
        return getattr(self.inner, attribute)

    def open(self):
        pass

    def advance(self, n):
        pass


class FirstInsteadOfLast(TinyModel):
    def last(self, input_ids, cache, n):
        logits = super().last(input_ids, cache, input_ids.shape[1])
        return logits[:, :n] if n > 1 else logits[:, -1:]


class WritesIntoItsWeights(TinyModel):
    def last(self, input_ids, cache, n):
        self.head.numpy()[0, 0] += 1e-13  # no version counter moves
        return super().last(input_ids, cache, n)


class LongBlocksBackwards(TinyModel):
    """Right as long as no more than 39 positions are asked for."""

    def last(self, input_ids, cache, n):
        logits = super().last(input_ids, cache, n)
        return logits if n < 40 else logits.flip(1)


class FingerprintOfTheTime(TinyModel):
    def fingerprint(self):
        self.calls = getattr(self, "calls", 0) + 1
        return f"{super().fingerprint()}-{self.calls}"


class VersionOfTheRun(TinyModel):
    """Counts its forwards as writes to its weights."""

    num_forwards = 0

    def last(self, input_ids, cache, n):
        self.num_forwards += 1
        return super().last(input_ids, cache, n)

    @property
    def weights_version(self):
        return self.num_forwards


class EndsOutsideItsVocabulary(TinyModel):
    def __init__(self, **options):
        super().__init__(**{**options, "eos_token_ids": [260]})


# Cache managers


class Around:
    """A manager that hands out the model's cache in a wrapper."""

    name = "around"

    def __init__(self, kind, grade="exact"):
        self.kind, self.grade = kind, grade

    def acquire(self, model, state):
        return self.kind(model.new_cache(state), model.supports)

    def release(self, cache, state):
        pass


class TrimsOneLayerLess(TinyCache):
    def open(self):
        pass

    def crop(self, length):
        kept = self._layers[-1], self._columns[-1]
        super().crop(length)
        self._layers[-1], self._columns[-1] = kept


class Trimming(caches.Dynamic):
    def acquire(self, model, state):
        return TrimsOneLayerLess(model.num_layers, state.starts, model.supports)


class OneCacheForAllRuns:
    def __init__(self):
        self.cache = None

    def acquire(self, model, state):
        new = model.new_cache(state)
        self.cache = self.cache or new
        self.cache.crop(0)
        self.cache.starts = new.starts
        return self.cache

    def release(self, cache, state):
        pass


class ForgetsLastLayer(WrappedCache):
    def reorder(self, indices):
        keys, values = self.layers[-1]
        super().reorder(indices)
        rows = [i % len(keys) for i in range(len(indices))]
        self.replace(len(self.layers) - 1, keys[rows], values[rows])


class ForgetsStarts(WrappedCache):
    def reorder(self, indices):
        starts = self.inner.starts
        super().reorder(indices)
        self.inner.starts = starts[[i % len(starts) for i in range(len(indices))]]


class PlainPrefix:
    """Keeps what single prompts leave behind; right, unless it is told to be wrong."""

    def __init__(self, too_many=0, copies=True, knows=("model", "weights")):
        self.too_many, self.copies, self.knows = too_many, copies, knows
        self.shelves = {}

    def shelf(self, model):
        model = unguarded(model)
        facts = {"model": model, "weights": model.weights_version}
        return self.shelves.setdefault(tuple(facts[fact] for fact in self.knows), [])

    def acquire(self, model, state):
        cache = model.new_cache(state)
        ids = state.token_ids[0].tolist()
        cache.shelf = stored = self.shelf(model)
        if len(state) > 1 or not stored:
            return cache
        length, layers, columns = max(
            ((self._common(ids, old), layers, columns) for old, layers, columns in stored),
            key=lambda found: found[0],
        )
        cache.advance(length)
        for i, (keys, values) in enumerate(layers):
            held = keys[:, :, :length], values[:, :, :length]
            cache._layers[i] = tuple(part.clone() for part in held) if self.copies else held
            cache._columns[i] = columns[:, :length]
        return cache

    def _common(self, ids, old):
        count = 0
        while count < min(len(ids) - 1, len(old)) and ids[count] == old[count]:
            count += 1
        return min(count + self.too_many, len(ids) - 1, len(old))

    def release(self, cache, state):
        if len(state) == 1 and not state.starts[0] and cache.length:
            layers = [tuple(part.clone() for part in layer) for layer in cache.layers]
            columns = torch.arange(cache.length)[None]
            cache.shelf.append((state.token_ids[0, : cache.length].tolist(), layers, columns))


class RoundedAtOnce(WrappedCache):
    """Eight bits in steps that are fixed: rounding again changes nothing."""

    def advance(self, n):
        super().advance(n)
        for i, (keys, values) in enumerate(self.layers):
            self.replace(i, self.round(keys), self.round(values))

    def round(self, numbers):
        return (numbers * 16).round() / 16


class RoundedAtEachStep(RoundedAtOnce):
    """The step follows the range of all that is held, so everything moves when it grows."""

    def round(self, numbers):
        step = numbers.abs().amax((1, 2, 3), keepdim=True) / 7
        return (numbers / step).round() * step


class SpoiledWhenLong(WrappedCache):
    """Right as long as it holds no more than 23 columns."""

    def advance(self, n):
        super().advance(n)
        if self.length >= 24:
            keys, values = self.layers[0]
            self.replace(0, keys.index_fill(2, torch.tensor([3]), 0), values)


class SpoiledLate(WrappedCache):
    """Right until it holds eight tokens that were generated."""

    def advance(self, n):
        super().advance(n)
        if self.length - self.prompt_end >= 8:
            for i, (keys, values) in enumerate(self.layers):
                self.replace(i, keys * 1.5, values)


class Late(Around):
    def acquire(self, model, state):
        cache = super().acquire(model, state)
        cache.prompt_end = state.length
        return cache


class CountsFortyPads(WrappedCache):
    """Right as long as no row has more than 40 columns of padding."""

    @property
    def starts(self):
        return self.inner.starts.clamp(max=40)


class SaysItIsExact(caches.SinkWindow):
    type: Literal["says_it_is_exact"] = "says_it_is_exact"
    grade: ClassVar[Literal["exact", "tolerance", "lossy"]] = "exact"


class Bounded(WrappedCache):
    """Moves the logits a little."""

    def advance(self, n):
        super().advance(n)
        for i, (keys, values) in enumerate(self.layers):
            self.replace(i, keys, values + 1e-6)


# Processors, samplers, stop criteria, decoders


class PenalisesForEver:
    """Its memory is on the spec, so it goes on from run to run."""

    def __init__(self):
        self.seen = set()

    def __call__(self, state, logits):
        logits = logits.clone()
        logits[:, sorted(self.seen)] -= 50
        self.seen.update(logits.argmax(-1).tolist())
        return logits


def drawn_globally(state, logits):
    return torch.multinomial(logits.softmax(-1), 1)[:, 0]


def drawn_by_place(state, logits):
    running = logits.softmax(-1).cumsum(-1).contiguous()
    drawn = (state.rng.uniform("place") + 0.37 * torch.arange(len(state))) % 1
    return torch.searchsorted(running, drawn[:, None])[:, 0].clamp(max=259)


def drawn_rightly(state, logits):
    running = logits.softmax(-1).cumsum(-1).contiguous()
    return torch.searchsorted(running, state.rng.uniform("place")[:, None].contiguous())[
        :, 0
    ].clamp(max=259)


def looks_at_first_row(state):
    return (state.last_ids[0] % 3 == 0).expand(len(state))


class CutsWithoutHoldingBack:
    """Cuts the text to nothing at the end, and never told streams to wait."""

    def __call__(self, state):
        return state.num_generated >= 3

    def report(self, state, i):
        return {"text_end": 0}


def leaves_cache_behind(model, manager, processors, sampler, stop_criteria, state):
    class Once:
        def acquire(self, *arguments):
            return manager.acquire(*arguments)

        def release(self, cache, state):
            pass

    steps = autoregressive(model, Once(), processors, sampler, stop_criteria, state)
    yield from steps
    manager.release(manager.acquire(model, state), state)


def repeats_last_step(model, manager, processors, sampler, stop_criteria, state):
    for step in autoregressive(model, manager, processors, sampler, stop_criteria, state):
        yield step
    yield step


def takes_second_best(model, manager, processors, sampler, stop_criteria, state):
    def second(state, logits):
        return logits.topk(2).indices[:, 1]

    yield from autoregressive(model, manager, processors, second, stop_criteria, state)


LEARNED = {"positions": "learned"}

MUTANTS = {
    "window off by one in the cached path": (
        "cached = uncached", lambda: {"model": make_model(WiderWindowWhenCached, window=3)}),
    "positions count the pads": (
        "any left padding", lambda: {"model": make_model(CountsPads, **LEARNED)}),
    "positions from widths": (
        "batch = single", lambda: {"model": make_model(StartsFromWidths)}),
    "a block that is not causal": (
        "any prefill split", lambda: {"model": make_model(SeesWholeBlock)}),
    "a model that remembers its run": (
        "at the same time = alone", lambda: {"model": make_model(RemembersItsRun, **LEARNED)}),
    "the same, as an attribute": (
        "the model stays as it is", lambda: {"model": make_model(RemembersItsRun, **LEARNED)}),
    "advance before the forward": (
        "a failed forward changes nothing", lambda: {"model": make_model(AdvancesFirst)}),
    "the first positions for the last": (
        "logits of the last positions", lambda: {"model": make_model(FirstInsteadOfLast)}),
    "weights written through a view": (
        "the model stays as it is", lambda: {"model": make_model(WritesIntoItsWeights)}),
    "a fingerprint that is never the same": (
        "the fingerprint stays", lambda: {"model": make_model(FingerprintOfTheTime)}),
    "a version that counts runs": (
        "the fingerprint stays", lambda: {"model": make_model(VersionOfTheRun)}),
    "an end token that is no token": (
        "facts are true", lambda: {"model": EndsOutsideItsVocabulary()}),
    "crop forgets a layer": (
        "crop then refill = never cropped", lambda: {"cache": Trimming()}),
    "one cache for all runs": (
        "at the same time = alone", lambda: {"cache": OneCacheForAllRuns()}),
    "reorder forgets a layer": (
        "reordered = never otherwise", lambda: {"cache": Around(ForgetsLastLayer)}),
    "reorder forgets the starts": (
        "reordered = never otherwise", lambda: {"cache": Around(ForgetsStarts)}),
    "a prefix one token too long": (
        "prefix reuse = fresh", lambda: {"cache": PlainPrefix(too_many=1)}),
    "a prefix for any model": (
        "kept for its own model", lambda: {"cache": PlainPrefix(knows=())}),
    "a prefix of a model whose weights have changed": (
        "kept for its own model", lambda: {"cache": PlainPrefix(knows=("model",))}),
    "a prefix of a model with as many writes": (
        "kept for its own model", lambda: {"cache": PlainPrefix(knows=("weights",))}),
    "a prefix that is not copied": (
        "memory is the run's own", lambda: {"cache": PlainPrefix(copies=False)}),
    "everything rounded at each step": (
        "rounded once", lambda: {"cache": Around(RoundedAtEachStep, "lossy")}),
    "lossy, and says it is exact": (
        "cached = uncached", lambda: {"cache": Around(RoundedAtOnce)}),
    "a processor that keeps its state": (
        "prefix reuse = fresh", lambda: {"processors": [PenalisesForEver()]}),
    "a sampler with the global generator": (
        "same seed = same tokens", lambda: {"sampler": drawn_globally}),
    "a sampler that draws by place": (
        "rows permuted = results permuted", lambda: {"sampler": drawn_by_place}),
    "a criterion that looks at another row": (
        "batch = single", lambda: {"stop_criteria": [looks_at_first_row]}),
    "a text cut that streams did not wait for": (
        "streamed = whole", lambda: {"stop_criteria": [CutsWithoutHoldingBack()]}),
    "a decoder that releases another cache": (
        "caches are released", lambda: {"decoder": leaves_cache_behind}),
    "a decoder with steps after the end": (
        "rows end once", lambda: {"decoder": repeats_last_step}),
    "a decoder with its own sampler": (
        "same as the plain loop", lambda: {"decoder": takes_second_best}),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_caught(mutant: str) -> None:
    law, make = MUTANTS[mutant]
    verdict = judge(law, **make())
    assert verdict.holds is False
    assert verdict.finding.mismatches > 0 and verdict.detail == verdict.finding.detail


HEALTHY = {
    "model": lambda: {"model": make_model(window=3, **LEARNED)},
    "wrapper": lambda: {"cache": Around(WrappedCache)},
    "prefix": lambda: {"cache": PlainPrefix()},
    "rounding": lambda: {"cache": Around(RoundedAtOnce, "lossy")},
    "sampler": lambda: {"sampler": drawn_rightly},
    "decoder": lambda: {"decoder": decoders.Autoregressive(), "sampler": samplers.Categorical()},
}


@pytest.mark.parametrize("double", HEALTHY)
def test_the_same_doubles_without_the_bug_keep_every_law(double: str) -> None:
    verdicts = [judge(law, num_cases=2, **HEALTHY[double]()) for law in EVERY_LAW]
    assert {v.law.name: v.detail for v in verdicts if v.holds is False} == {}
    assert sum(v.holds is None for v in verdicts) == (6 if double == "rounding" else 0)


def test_a_check_names_the_law_and_the_first_place_where_it_is_broken() -> None:
    message = "'around' breaks the law 'cached = uncached': .*row 0, step 1: the logits differ by"
    with pytest.raises(LawBroken, match=message) as caught:
        check_cache_manager(Around(RoundedAtOnce), max_examples=5)
    assert caught.value.law == "cached = uncached"


LONG_MUTANTS = {
    "a window that is said to be exact": (
        "cached = uncached",
        lambda: check_cache_manager(SaysItIsExact(num_sinks=4, window=64), max_examples=2)),
    "a key that is lost later": (
        "cached = uncached",
        lambda: check_cache_manager(Around(SpoiledWhenLong), max_examples=2)),
    "keys that change after eight tokens": (
        "cached = uncached",
        lambda: check_cache_manager(Late(SpoiledLate), max_examples=2)),
    "too much padding": (
        "cached = uncached",
        lambda: check_cache_manager(Around(CountsFortyPads), max_examples=2)),
    "many positions at once": (
        "logits of the last positions",
        lambda: check_backend(make_model(LongBlocksBackwards), max_examples=2)),
}  # fmt: skip


@pytest.mark.parametrize("mutant", LONG_MUTANTS)
def test_a_check_finds_what_only_long_cases_show(mutant: str) -> None:
    law, check = LONG_MUTANTS[mutant]
    with pytest.raises(LawBroken) as caught:
        check()
    assert caught.value.law == law


def test_a_long_case_is_made_smaller() -> None:
    with pytest.raises(LawBroken, match="row 0, step 2: the logits differ") as caught:
        check_cache_manager(Around(SpoiledWhenLong), max_examples=2)
    [prompt] = re.findall(r"prompt \[(.*?)\]", caught.value.evidence)
    assert len(prompt.split(", ")) == 23  # the 24th column is fed before the last of three steps


def test_a_tolerance_is_what_the_manager_states() -> None:
    manager = Around(Bounded, "tolerance")
    assert judge("cached = uncached", num_cases=2, cache=manager).holds is False
    manager.logit_bound = 1e-3
    verdict = judge("cached = uncached", num_cases=2, cache=manager)
    assert verdict.holds and 1e-8 < verdict.finding.worst_logit_error < 1e-3
    assert caches.Dynamic.logit_bound == 0.0


def test_a_tolerance_that_is_exceeded_is_called_what_the_manager_allows() -> None:
    manager = Around(Bounded, "tolerance")
    manager.logit_bound = 1e-9
    verdict = judge("cached = uncached", num_cases=2, cache=manager)
    assert verdict.holds is False
    assert re.search(r"logits differ by \S+, and the bound it states allows 1e-09", verdict.detail)


def test_a_tolerance_without_a_bound_is_refused() -> None:
    message = "'around' has the grade 'tolerance' and states no bound .*`logit_bound` is 0.0"
    manager = Around(Bounded, "tolerance")
    with pytest.raises(UnsupportedError, match=message):
        check_cache_manager(manager, max_examples=1)
    with pytest.raises(UnsupportedError, match=message):
        verify(Pipeline(make_model(), cache=manager), num_cases=1)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("grade", "excellent"), ("requires", {"lairs"}), ("supports", lambda model: {"lairs"})],
)
def test_a_manager_that_claims_what_there_is_not_is_refused_by_name(attribute, value) -> None:
    manager = Around(WrappedCache)
    setattr(manager, attribute, value)
    with pytest.raises(UnsupportedError, match="'around'"):
        check_cache_manager(manager, max_examples=1)


def test_a_manager_that_gives_no_cache_breaks_a_law() -> None:
    with pytest.raises(LawBroken, match="'around' breaks the law .*NoneType"):
        check_cache_manager(Around(lambda inner, supports: None), max_examples=1)


def test_a_mutant_is_no_pipeline_that_always_fails() -> None:
    # The bug of each double shows in its law, and not because nothing works.
    assert judge("batch = single", make_model(WiderWindowWhenCached, window=3), 4).holds
    assert judge("cached = uncached", make_model(CountsPads, **LEARNED), 4).holds
    assert judge("cached = uncached", make_model(SeesWholeBlock), 4).holds
    for prefix in (PlainPrefix(copies=False), PlainPrefix(knows=())):
        assert judge("batch = single", num_cases=4, cache=prefix).holds
        assert judge("prefix reuse = fresh", num_cases=4, cache=prefix).holds
    assert judge("any prefill split", num_cases=4, cache=Around(ForgetsLastLayer)).holds
