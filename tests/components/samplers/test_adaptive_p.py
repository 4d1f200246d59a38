"""Adaptive-p, by hand."""

import functools
import math

import pytest
import torch

import running
from genkit.components.samplers import AdaptiveP, Categorical
from genkit.errors import OptionError
from genkit.testing import check_sampler

INF = math.inf
PROBS = [0.7, 0.2, 0.1, 0.0]


bound = functools.partial(running.bound, purpose="adaptive_p:0")


def logits_of(*probs: float) -> torch.Tensor:
    return torch.tensor([[math.log(p) if p else -INF for p in probs]], dtype=torch.float64)


def reshaped(part: AdaptiveP, *sums: float) -> list[float]:
    sampler, _ = bound(part, len(PROBS))
    probs = torch.tensor([PROBS], dtype=torch.float64)
    given = torch.tensor([sums], dtype=torch.float64)
    return sampler.reshaped(logits_of(*PROBS), probs, given)[0].tolist()


@pytest.mark.parametrize(
    ("target", "sums", "aim"),
    [
        (0.2, (2.0, 10.0), 0.2),
        (0.2, (1.0, 10.0), 0.3),
        (0.2, (9.0, 10.0), 0.0),
        (0.9, (1.0, 10.0), 1.0),
        (0.0, (0.0, 1.0), 0.0),
    ],
)
def test_the_logits_that_are_drawn_from(target: float, sums, aim: float) -> None:
    expected = []
    for p in PROBS[:3]:
        distance = abs(p - aim) / 0.3
        expected.append(5 - 10 * distance**2 / (1 + distance))
    assert reshaped(AdaptiveP(target=target), *sums) == pytest.approx([*expected, -INF])


def test_a_token_that_is_allowed_counts_however_improbable_it_is() -> None:
    """Its probability is 0 in float64, and yet it is as good as any other of the tail."""
    sampler, _ = bound(AdaptiveP(target=0.0), 3)
    logits = torch.tensor([[0.0, -5000.0, -INF]])
    probs = logits.softmax(-1, dtype=torch.float64)
    sums = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    found = sampler.reshaped(logits, probs, sums)[0].tolist()
    assert found[1:] == [5.0, -INF] and found[0] < -20


def test_the_sums_follow_the_token_that_comes() -> None:
    sampler, state = bound(AdaptiveP(target=0.3, decay=0.5), 4, rows=32)
    logits = logits_of(*PROBS).float().expand(32, -1)
    assert sampler.sums.at(state)[0].tolist() == pytest.approx([0.6, 2.0])
    ids = sampler(state, logits)
    coming = torch.where(torch.arange(32) < 16, ids, 3)  # for half of the rows another one comes
    state.append(coming)
    for i, (token_id, sums) in enumerate(zip(ids.tolist(), sampler.sums.at(state), strict=True)):
        moved = [PROBS[token_id] + 0.5 * 0.6, 1 + 0.5 * 2.0]
        assert sums.tolist() == pytest.approx(moved if i < 16 else [0.6, 2.0])
    assert len(set(ids.tolist())) > 1 and 3 not in ids


def test_the_average_may_begin_elsewhere() -> None:
    sampler, state = bound(AdaptiveP(target=0.3, decay=0.5, start=1.0), 4)
    assert sampler.sums.at(state).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("target", [0.1, 0.25, 0.4, 0.6])
def test_the_chosen_probabilities_are_near_the_target(target: float) -> None:
    """Over a long run, in rows that have tokens of about any probability."""
    rows, steps = 50, 120
    sampler, state = bound(AdaptiveP(target=target), 12, rows)
    generator = torch.Generator().manual_seed(0)
    chosen = []
    for _ in range(steps):
        logits = 2 * torch.randn(rows, 12, generator=generator)
        ids = sampler(state, logits)
        chosen.append(logits.softmax(-1).gather(1, ids[:, None]))
        state.append(ids)
    assert float(torch.stack(chosen[30:]).mean()) == pytest.approx(target, abs=0.12)


def test_below_0_it_draws_plainly() -> None:
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(3))
    plain, state = bound(Categorical(), 9, rows=50)
    sampler, _ = bound(AdaptiveP(target=-1), 9, rows=50)
    assert torch.equal(sampler(state, logits), plain(state, logits))
    check_sampler(AdaptiveP(target=-1), distribution=True, max_examples=5)


def test_tokens_taken_back_leave_nothing_behind() -> None:
    logits = torch.randn(10, 2, 8, generator=torch.Generator().manual_seed(1)) * 2
    sampler, state = bound(AdaptiveP(target=0.4), 8, rows=2)
    ids, sums = [], []
    for given in logits:
        sums.append(sampler.sums.at(state).clone())
        ids.append(sampler(state, given))
        state.append(ids[-1])
    sampler.rewind(4)
    _, state = bound(Categorical(), 8, rows=2)
    for chosen in ids[:6]:
        state.append(chosen)
    for step in range(6, 10):
        assert torch.equal(sampler.sums.at(state), sums[step])
        assert torch.equal(sampler(state, logits[step]), ids[step])
        state.append(ids[step])


@pytest.mark.parametrize(
    "part",
    [AdaptiveP(target=0.0), AdaptiveP(target=1.0, decay=0.0), AdaptiveP(target=0.5, start=3.0)],
    ids=repr,
)
def test_the_laws(part: AdaptiveP) -> None:
    check_sampler(part, max_examples=25)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": 1.1},
        {"target": math.nan},
        {"target": True},
        {"target": 0.5, "decay": 1.0},
        {"target": 0.5, "decay": -0.1},
        {"target": 0.5, "start": -0.1},
    ],
    ids=repr,
)
def test_options_out_of_range(options) -> None:
    with pytest.raises(OptionError, match=list(options)[-1] if options else "target"):
        AdaptiveP(**options)
