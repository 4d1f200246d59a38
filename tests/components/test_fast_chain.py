"""The fast chain is the plain one: the same tokens kept, the same logits, the same draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genkit import Pipeline, processors, samplers, stopping
from genkit.components.base import LogitsProcessor
from genkit.components.candidates import rows_of
from genkit.components.fast_chain import FastDraw, FastTruncations, collapsed
from genkit.core.binding import Parts
from genkit.core.guard import unguarded
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import PartError
from genkit.testing import ScriptedModel

P = processors
OPENINGS: list[Any] = [
    P.TopK(k=1),
    P.TopK(k=7),
    P.TopK(k=50),
    P.TopK(k=7, ties="keep"),
    P.TopK(k=2, min_keep=5),
    P.MinP(min_p=0.05),
    P.MinP(min_p=1),
    P.MinP(min_p=0.3, min_keep=4),
    P.TopP(p=0.0),
    P.TopP(p=0.5),
    P.TopP(p=0.95),
    P.TopP(p=0.999),
    P.TopP(p=0.5, rule="above<=p"),
    P.TopP(p=0.5, rule="through<=p"),
    P.TopP(p=0.7, ties="keep"),
    P.TopP(p=0.2, min_keep=9),
]
FOLLOWERS: list[Any] = [
    *OPENINGS,
    P.Temperature(temperature=0.7),
    P.Temperature(temperature=3.0),
    P.Temperature(temperature=0),
    P.Epsilon(epsilon=0.02),
    P.TypicalP(p=0.8),
    P.TopA(a=0.2),
    P.TopNSigma(n=1.0),
]
KINDS = ("gauss", "peaked", "flat", "ties", "halves", "bfloat16", "masked", "one", "huge")


def rows(kind: str, num_rows: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows, width, generator=generator) * 3
    match kind:
        case "peaked":
            logits = logits * 6
        case "flat":
            logits = torch.zeros(num_rows, width)
        case "ties":
            logits = logits.round()
        case "halves":  # probabilities 1/2, 1/4, 1/8 ... in some order: sums are exact
            order = torch.rand(num_rows, width, generator=generator).argsort(-1)
            logits = -(order.double().clamp(max=60) * math.log(2)).float()
        case "bfloat16":
            logits = logits.bfloat16().float()
        case "masked":
            forbidden = torch.rand(num_rows, width, generator=generator) < 0.9
            forbidden[:, 0] = False
            logits = logits.masked_fill(forbidden, -math.inf)
        case "one":
            logits = torch.full((num_rows, width), -math.inf)
            logits[:, width // 2] = 1.0
        case "huge":
            logits = logits * 1e4
    return logits


def bound(chain: Sequence[Any], width: int, seeds: Sequence[int]) -> tuple[Any, Any]:
    """The parts of a run, and a new state for it."""
    prompts = tuple((1,) for _ in seeds)
    run = Run(
        prompts=prompts,
        seeds=tuple(seeds),
        samples=(0,) * len(seeds),
        limits=(9,) * len(seeds),
        rows=tuple(range(len(seeds))),
        vocab_size=width,
    )
    parts = Parts(None, None, chain, samplers.Categorical(), [stopping.MaxNewTokens(limit=3)])
    return parts, run


def choose(made: Any, run: Run, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What processors and sampler of a run make of logits."""
    state = GenerationState(run.prompts, run.limits, RowRandom(run.seeds, run.samples))
    for processor in made.processors:
        logits = processor(state, logits)
    return logits, made.sampler(state, logits)


def both(chain: Sequence[Any], logits: torch.Tensor, seeds: Sequence[int]) -> tuple[Any, Any]:
    parts, run = bound(chain, logits.shape[1], seeds)
    parts = Parts(_nothing, _Manager(), parts.processors, parts.sampler, parts.stop_criteria)
    plain, fast = parts.bind(run), collapsed(parts.bind(run))
    # A part that does nothing at this size of the vocabulary is not there.
    active = [part for part in chain if part.bind(run) is not None]
    assert any(isinstance(each, FastTruncations) for each in fast.processors) == any(
        hasattr(part, "narrow") for part in active
    )
    return choose(plain, run, logits), choose(fast, run, logits)


def _nothing(*_: Any) -> None:
    """A decoder that is never called."""


class _Manager:
    """A cache manager that is never called."""

    def acquire(self, model: Any, state: Any) -> None: ...

    def release(self, cache: Any, state: Any) -> None: ...


def assert_same(chain: Sequence[Any], logits: torch.Tensor, seeds: Sequence[int]) -> None:
    (plain, ids), (fast, fast_ids) = both(chain, logits, seeds)
    assert torch.equal(plain > -math.inf, fast > -math.inf), "other tokens are kept"
    assert torch.equal(plain, fast)
    assert torch.equal(ids, fast_ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opening", OPENINGS, ids=repr)
def test_every_truncation_that_finds_candidates(opening: Any, kind: str) -> None:
    for width in (300, 1000, 5000):
        assert_same([opening], rows(kind, 2, width, width), [3, 4])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(OPENINGS),
    st.lists(st.sampled_from(FOLLOWERS), max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from([0.01, 0.7, 0.8, 1.0, 3.0]),
    st.integers(1, 3),
    st.sampled_from([2, 17, 256, 257, 512, 1111, 4096]),
    st.integers(0, 2**32 - 1),
)
def test_chains_of_truncations(
    opening: Any,
    others: list[Any],
    kind: str,
    temperature: float,
    num_rows: int,
    width: int,
    seed: int,
) -> None:
    before = [P.RepetitionPenalty(penalty=1.2), P.Temperature(temperature=temperature)]
    logits = rows(kind, num_rows, width, seed)
    assert_same([*before, opening, *others], logits, range(seed, seed + num_rows))


def test_the_draw_goes_through_all_candidates() -> None:
    logits = rows("gauss", 1, 1000, 0)
    chain = [P.TopK(k=5)]
    found = {int(both(chain, logits, [seed])[1][1]) for seed in range(200)}
    assert len(found) == 5
    for seed in range(200):
        assert_same(chain, logits, [seed])


@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
def test_a_row_that_is_spoilt_is_left_to_the_plain_chain(spoilt: float) -> None:
    logits = rows("gauss", 2, 600, 0)
    logits[1, 5] = spoilt
    (plain, ids), (fast, fast_ids) = both([P.TopK(k=4), P.TopP(p=0.9)], logits, [1, 2])
    assert torch.equal(plain.nan_to_num(), fast.nan_to_num()) and torch.equal(ids, fast_ids)


def test_a_row_in_which_nothing_is_allowed() -> None:
    logits = rows("gauss", 2, 600, 0)
    logits[1] = -math.inf
    (plain, ids), (fast, fast_ids) = both([P.TopK(k=4)], logits, [1, 2])
    assert torch.equal(plain, fast) and torch.equal(ids, fast_ids)


def names(chain: Sequence[Any], sampler: Any = None) -> list[str]:
    parts, run = bound(chain, 500, [1])
    parts = Parts(_nothing, _Manager(), chain, sampler or samplers.Categorical(), [])
    made = collapsed(parts.bind(run))
    return [type(unguarded(each)).__name__ for each in (*made.processors, made.sampler)]


def test_what_is_collapsed() -> None:
    """The longest run of truncations before the draw that begins with one that finds candidates."""
    fast = [FastTruncations.__name__, FastDraw.__name__]
    assert names([P.TopK(k=3)]) == fast
    assert names([P.Temperature(temperature=2), P.TopK(k=3), P.MinP(min_p=0.1)]) == fast
    cold = P.Temperature(temperature=0)
    assert names([cold, P.TopK(k=3)]) == ["Temperature", *fast]
    assert names([P.TopK(k=9), P.RepetitionPenalty(penalty=2), P.TopP(p=0.5)]) == [
        "TopK",
        type(P.RepetitionPenalty(penalty=2).bind(bound([], 500, [1])[1])).__name__,
        *fast,
    ]


def test_what_is_left_as_it_is() -> None:
    assert names([P.Temperature(temperature=2)]) == ["Temperature", "InverseCdf"]
    assert names([P.TopK(k=3)], samplers.Greedy()) == ["TopK", "Greedy"]
    xtc = P.Xtc(probability=0.5, threshold=0.1)
    assert FastDraw.__name__ not in names([P.TopK(k=3), xtc])


@pytest.mark.parametrize("divisor", [1.0, 0.7])
def test_blocks_cover_every_token(divisor: float) -> None:
    for width in (1, 255, 256, 257, 513, 3000):
        logits = rows("gauss", 2, width, width)
        for row, values in zip(
            rows_of(logits.numpy(), divisor), (logits / divisor).numpy(), strict=True
        ):
            everything = row.at_least(np.float32(-math.inf))
            assert everything.ids.tolist() == list(range(width))
            assert everything.logits.tolist() == values.tolist()
            for k in {1, min(3, width), width}:
                reached = row.reached_by(k)
                assert (values >= reached).sum() >= k
                found = row.at_least(reached)
                assert set(found.ids) >= set(np.flatnonzero(values >= reached))
                assert found.logits.tolist() == values[found.ids].tolist()


def test_a_forbidden_token_is_no_candidate() -> None:
    [row] = rows_of(np.array([[0.0, -math.inf, 9.0]], np.float32))
    assert row.at_least(np.float32(-math.inf)).ids.tolist() == [0, 2]


# Parts that others write.


class Annealed(P.Temperature):
    """It inherits what a temperature says of itself, and does something else."""

    type: Literal["annealed"] = "annealed"

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits / (self.temperature * 10)


class Capped(P.TopK):
    """It forbids one token more."""

    type: Literal["capped"] = "capped"

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        out = super().__call__(state, logits)
        return out.scatter(-1, out.argmax(-1, keepdim=True), -math.inf)


@pytest.mark.parametrize("chain", [[Annealed(temperature=0.5), P.TopK(k=9)], [Capped(k=9)]])
def test_a_part_that_overrides_the_call_is_called(chain: Sequence[Any]) -> None:
    parts, run = bound(chain, 500, [1])
    parts = Parts(_nothing, _Manager(), chain, samplers.Categorical(), [])
    logits = rows("gauss", 1, 500, 0)
    plain, fast = parts.bind(run), collapsed(parts.bind(run))
    assert torch.equal(choose(plain, run, logits)[0], choose(fast, run, logits)[0])


class OnAllowed(LogitsProcessor):
    """A part among the truncations that does what it is told."""

    type: Literal["on_allowed"] = "on_allowed"
    acts_on_allowed: ClassVar[bool] = True
    does: ClassVar[Any] = None

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        return type(self).does(logits)


def _raise(logits: torch.Tensor) -> torch.Tensor:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (lambda logits: logits[:, :1], r"processors\.1 \(on_allowed\) returned float32 \[1, 1\]"),
        (lambda logits: logits[0], r"processors\.1 \(on_allowed\) returned"),
        (lambda logits: logits.double(), r"processors\.1 \(on_allowed\) returned float64"),
        (lambda logits: logits.mul_(2), r"processors\.1 \(on_allowed\) wrote into"),
        (lambda logits: None, r"processors\.1 \(on_allowed\) returned NoneType"),
        (_raise, r"step 0: processors\.1 \(on_allowed\) raised ValueError: boom"),
    ],
)
def test_a_broken_part_is_named(does: Any, message: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(OnAllowed, "does", staticmethod(does))
    model = ScriptedModel(rows("gauss", 1, 500, 0))
    pipeline = Pipeline(
        model, processors=[P.TopK(k=9), OnAllowed()], sampler=samplers.Categorical()
    )
    with pytest.raises(PartError, match=message):
        pipeline.generate([1], max_new_tokens=2)


class Narrowing(P.TopK):
    """A part that cannot be asked."""

    type: Literal["narrowing"] = "narrowing"

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        return super().__call__(state, logits)

    def narrow(self, row: Any) -> Any:
        raise ValueError("boom")

    def shorten(self, ranked: Any) -> bool:
        raise ValueError("boom")


def test_what_raises_while_it_is_asked_is_named() -> None:
    for width, method in ((500, "shorten"), (5000, "narrow")):
        pipeline = Pipeline(
            ScriptedModel(rows("gauss", 1, width, 0)),
            processors=[Narrowing(k=3)],
            sampler=samplers.Categorical(),
        )
        with pytest.raises(PartError, match=rf"processors\.0 \(narrowing\) raised .*`{method}`"):
            pipeline.generate([1], max_new_tokens=1)


def test_a_part_that_only_narrows_is_called() -> None:
    class Only(P.Epsilon):
        type: Literal["only"] = "only"

        def narrow(self, row: Any) -> Any:
            raise AssertionError

    assert FastDraw.__name__ not in names([Only(epsilon=0.01)])


def test_an_error_names_the_part_and_not_those_that_stand_for_it() -> None:
    logits = rows("gauss", 1, 3000, 0)
    logits[0, 7] = torch.finfo(torch.float32).max
    pipeline = Pipeline(
        ScriptedModel(logits),
        processors=[P.Temperature(temperature=0.5), P.TopK(k=4)],
        sampler=samplers.Categorical(),
    )
    with pytest.raises(PartError, match=r"processors\.0 \(temperature\) the row has \+inf in 1 "):
        pipeline.generate([1], max_new_tokens=1)


@pytest.mark.parametrize("temperature", [1.0, 3.0, 1e3, 1e20, 1e38])
@pytest.mark.parametrize("scale", [1e-38, 1e-44])
@pytest.mark.parametrize("part", [P.TopK(k=4), P.MinP(min_p=1.0), P.TopP(p=0.3)], ids=repr)
def test_logits_of_almost_nothing(part: Any, scale: float, temperature: float) -> None:
    logits = rows("gauss", 2, 3000, 0) * scale
    assert_same([P.Temperature(temperature=temperature), part], logits, [1, 2])
