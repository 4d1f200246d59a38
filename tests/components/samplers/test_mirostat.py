"""Mirostat, by hand and against its formula written out."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import running
from genkit.components.samplers import Mirostat
from genkit.errors import OptionError
from genkit.pipeline import Pipeline
from genkit.testing import TinyModel, check_sampler

INF = math.inf


bound = functools.partial(running.bound, purpose="mirostat:0")


def kept(part: Mirostat, logits: list[float], mu: float) -> list[int]:
    """The tokens that are left."""
    sampler, _ = bound(part, len(logits))
    probs = sampler.truncated(torch.tensor([logits]), torch.tensor([[mu]], dtype=torch.float64))
    assert math.isclose(float(probs.sum()), 1)
    return probs[0].nonzero()[:, 0].tolist()


def bits(*probs: float) -> list[float]:
    return [math.log(p) if p else -INF for p in probs]


HALVES = bits(1 / 8, 1 / 2, 1 / 4, 0, 1 / 8)


@pytest.mark.parametrize(
    ("mu", "ids"),
    [
        (-5.0, [1]),
        (0.0, [1]),
        (1.0, [1]),
        (1.9, [1]),
        (2.0, [1, 2]),
        (2.9, [1, 2]),
        (3.0, [0, 1, 2, 4]),
        (99.0, [0, 1, 2, 4]),
    ],
)
def test_version_2_keeps_what_surprises_by_mu_at_most(mu: float, ids: list[int]) -> None:
    """On the bound too; the most probable one in any case, and never what is forbidden."""
    assert kept(Mirostat(), HALVES, mu) == ids


def test_mu_moves_by_the_surprise_among_those_kept() -> None:
    sampler, state = bound(Mirostat(tau=1.0, eta=0.1), 5, rows=64)
    logits = torch.tensor([HALVES]).expand(64, -1)
    ids = sampler(state, logits)
    state.append(ids)
    after = sampler.mu.at(state)[:, 0]
    assert set(ids.tolist()) == {1, 2}
    for token_id, prob in ((1, 2 / 3), (2, 1 / 3)):
        expected = 2.0 - 0.1 * (-math.log2(prob) - 1.0)
        torch.testing.assert_close(
            after[ids == token_id],
            torch.full_like(after[ids == token_id], expected),
            rtol=1e-6,
            atol=0,
        )


def test_mu_stays_without_a_rate() -> None:
    sampler, state = bound(Mirostat(tau=1.5, eta=0), 5)
    for _ in range(3):
        state.append(sampler(state, torch.tensor([HALVES])))
    assert float(sampler.mu.at(state)) == 3.0


def rank(logits: list[float], mu: float, num_estimated: int) -> float:
    """k of version 1, as the paper has it, in plain arithmetic."""
    ordered = sorted((x for x in logits if x > -INF), reverse=True)[:num_estimated]
    steps = [math.log((i + 2) / (i + 1)) for i in range(len(ordered) - 1)]
    gaps = [a - b for a, b in itertools.pairwise(ordered)]
    s = sum(t * b for t, b in zip(steps, gaps, strict=True)) / sum(t * t for t in steps)
    excess = s - 1
    size = len(logits)
    return ((excess * 2**mu) / (1 - size**-excess)) ** (1 / s)


@given(
    st.lists(st.integers(-40, 40).map(lambda i: i / 4), min_size=4, max_size=30, unique=True),
    st.floats(0.5, 12),
    st.integers(2, 35),
    st.sets(st.integers(0, 29), max_size=2),
)
def test_version_1_keeps_the_k_most_probable(logits, mu, num_estimated, forbidden) -> None:
    logits = [-INF if i in forbidden else x for i, x in enumerate(logits)]
    k = rank(logits, mu, num_estimated)
    if abs(k - round(k)) < 1e-6:
        return  # rounding decides
    allowed = sorted((i for i, x in enumerate(logits) if x > -INF), key=lambda i: (-logits[i], i))
    expected = allowed[: int(min(max(k, 1), len(logits)))]
    found = kept(Mirostat(version=1, num_estimated=num_estimated), logits, mu)
    assert found == sorted(expected)


@pytest.mark.parametrize(("mu", "count"), [(0.0, 1), (2.0, 1), (4.0, 5), (5.0, 11), (8.0, 16)])
def test_version_1_where_the_exponent_is_1(mu: float, count: int) -> None:
    """p is in proportion to 1/1, 1/2, 1/3, ...; then k is 2^mu / ln 16."""
    logits = [-math.log(i + 1) for i in range(16)]
    assert len(kept(Mirostat(version=1), logits, mu)) == count


def test_version_1_keeps_the_lower_of_equal_ids() -> None:
    logits = [0.0, 3.0, 0.0, 0.0, 1.0]
    mu = next(mu / 10 for mu in range(200) if 3 <= rank(logits, mu / 10, 100) < 4)
    assert kept(Mirostat(version=1), logits, mu) == [0, 1, 4]


FLAT = [0.01 * i for i in range(40)]


def test_a_nearly_flat_row_keeps_everything_or_what_32_bits_leave() -> None:
    """k is about 10^53 here."""
    assert rank(FLAT, 12.0, 100) > 2**31
    assert len(kept(Mirostat(version=1), FLAT, 12.0)) == 40
    assert kept(Mirostat(version=1, huge_k="keeps_one"), FLAT, 12.0) == [39]


@pytest.mark.parametrize("mu", [-9.0, 0.0, 9.0])
@pytest.mark.parametrize("version", [1, 2])
def test_rows_that_give_no_estimate(version: int, mu: float) -> None:
    """One token, one that is allowed, equal ones, huge gaps, hardly any gap."""
    part = Mirostat(version=version)
    assert kept(part, [3.0], mu) == [0]
    assert kept(part, [-INF, 7.0, -INF], mu) == [1]
    assert kept(part, [1e30, -1e30, 0.0], mu) == [0]
    assert 0 in kept(part, [0.0] * 4, mu)
    assert 2 in kept(part, [0.0, 0.0, 1e-30], mu) or mu < 0


@pytest.mark.parametrize("version", [1, 2])
def test_the_text_surprises_as_much_as_it_is_meant_to(version: int) -> None:
    """Over a long run, in rows of changing shape."""
    part = Mirostat(version=version, tau=3.0, eta=0.2)
    rows, steps, size = 50, 150, 400
    sampler, state = bound(part, size, rows)
    generator = torch.Generator().manual_seed(0)
    surprises = []
    for _ in range(steps):
        logits = 3 * torch.randn(rows, size, generator=generator)
        probs = sampler.truncated(logits, sampler.mu.at(state))
        ids = sampler(state, logits)
        surprises.append(-probs.gather(1, ids[:, None]).log2())
        state.append(ids)
    assert abs(float(torch.stack(surprises[50:]).mean()) - 3.0) < 0.1


@pytest.mark.parametrize("version", [1, 2])
def test_tokens_taken_back_leave_nothing_behind(version: int) -> None:
    """The same draws once more, after `rewind`."""
    logits = torch.randn(12, 2, 30, generator=torch.Generator().manual_seed(1)) * 3
    sampler, state = bound(Mirostat(version=version, eta=0.5), 30, rows=2)
    ids, mus = [], []
    for given_ in logits:
        mus.append(sampler.mu.at(state).clone())
        ids.append(sampler(state, given_))
        state.append(ids[-1])
    sampler.rewind(5)
    _, state = bound(Mirostat(), 30, rows=2)
    for chosen in ids[:7]:
        state.append(chosen)
    for step in range(7, 12):
        assert torch.equal(sampler.mu.at(state), mus[step])
        assert torch.equal(sampler(state, logits[step]), ids[step])
        state.append(ids[step])
    assert len({round(float(mu[0]), 6) for mu in mus}) > 6  # it has moved


@pytest.mark.parametrize("version", [1, 2])
def test_a_row_in_a_batch_is_the_row_alone(version: int) -> None:
    model, sampler = TinyModel(), Mirostat(version=version, tau=2.0, eta=0.5)
    pipeline = Pipeline(model, sampler=sampler, stop_criteria=[])
    prompts = [[1, 2, 3], [4], [5, 6]]
    together = pipeline.generate(prompts, seeds=[1, 2, 3], max_new_tokens=12)
    for prompt, seed, result in zip(prompts, (1, 2, 3), together, strict=True):
        alone = pipeline.generate(prompt, seed=seed, max_new_tokens=12)
        assert alone.token_ids == result.token_ids


@pytest.mark.parametrize(
    "part",
    [
        Mirostat(),
        Mirostat(tau=0.5, eta=1.0),
        Mirostat(version=1, tau=2.0, num_estimated=3),
        Mirostat(version=1, huge_k="keeps_one"),
    ],
    ids=repr,
)
def test_the_laws(part: Mirostat) -> None:
    check_sampler(part, max_examples=25)


def test_float64_and_views() -> None:
    logits = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(2)).double() * 3
    for version in (1, 2):
        sampler, state = bound(Mirostat(version=version), 9, rows=2)
        assert torch.equal(
            sampler(state, logits[:, 1]), sampler(state, logits[:, 1].contiguous().float())
        )


@pytest.mark.parametrize(
    "options",
    [
        {"version": 3},
        {"version": 0},
        {"version": True},
        {"tau": -1},
        {"eta": -0.1},
        {"tau": math.nan},
        {"num_estimated": 1},
        {"huge_k": "overflows"},
    ],
    ids=repr,
)
def test_options_out_of_range(options) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        Mirostat(**options)
