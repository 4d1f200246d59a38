"""The two watermarks: by hand, against transformers, and found again by its detector."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PretrainedConfig, WatermarkDetector, WatermarkingConfig, generation

from genkit.components.processors import TopK, Watermark
from genkit.components.samplers import Categorical
from genkit.errors import OptionError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, check_logits_processor, process
from vectors import apply, rows_of

INF = math.inf
SPREAD = torch.randn(1, 64, generator=torch.Generator().manual_seed(0)) * 3
KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57]


def green_list(**options) -> Watermark:
    return Watermark(scheme={"type": "green_list", **options})


def synthid(**options) -> Watermark:
    return Watermark(scheme={"type": "synthid", "keys": KEYS, **options})


def marked(part, text, logits=SPREAD, prompt=None) -> torch.Tensor:
    prompts, generated = ([text], [[]]) if prompt is None else ([prompt], [text])
    return apply([part], logits, prompts=prompts, generated=generated)


# Green lists.


@pytest.mark.parametrize(("ratio", "number"), [(0.25, 16), (0.5, 32), (0.03, 1), (0.99, 63)])
def test_a_share_of_the_vocabulary_is_green(ratio: float, number: int) -> None:
    added = marked(green_list(ratio=ratio, bias=1.5), [7]) - SPREAD
    assert int((added > 1).sum()) == number
    torch.testing.assert_close(added[added > 1], torch.full((number,), 1.5))


def test_green_tokens_depend_on_the_last_token_and_on_the_secret() -> None:
    flat = torch.zeros(1, 64)
    once = marked(green_list(), [3, 7], flat)
    assert torch.equal(once, marked(green_list(), [5, 5, 7], flat))
    assert not torch.equal(once, marked(green_list(), [7, 3], flat))
    assert not torch.equal(once, marked(green_list(hashing_key=5), [3, 7], flat))


def test_a_token_that_is_forbidden_is_no_greener_for_it() -> None:
    logits = torch.full((1, 64), -INF).index_fill(1, torch.tensor([3, 9]), 1.0)
    out = marked(green_list(ratio=0.99), [7], logits)
    assert out.isfinite().nonzero()[:, 1].tolist() == [3, 9]


@pytest.mark.parametrize("seeding", ["lefthash", "selfhash"])
def test_a_row_is_marked_once_it_is_long_enough(seeding: str) -> None:
    """And padding, which is id 0, is not part of it."""
    part = green_list(seeding=seeding, context_width=3, ratio=0.5)
    logits = SPREAD.expand(3, -1)
    out = apply([part], logits, prompts=[[1, 2], [0, 1, 2], [9, 0, 1, 2]], generated=[[]] * 3)
    assert torch.equal(out[0], SPREAD[0])
    assert torch.equal(out[1], out[2]) and not torch.equal(out[1], SPREAD[0])
    assert torch.equal(marked(part, [1, 2]), SPREAD)


def test_selfhash_marks_none_but_the_forty_most_probable() -> None:
    added = marked(green_list(seeding="selfhash", ratio=0.9), [7]) - SPREAD
    green = (added > 1)[0]
    fortieth = SPREAD[0].sort(descending=True).values[39]
    assert 30 <= int(green.sum()) <= 40 and SPREAD[0][green].min() >= fortieth


def test_selfhash_in_a_small_vocabulary() -> None:
    out = process(green_list(seeding="selfhash", ratio=0.5, bias=1), [0.0, -INF, 0.0, 0.0])
    assert out[1] == -INF and set(out) <= {0.0, 1.0, -INF}


@pytest.mark.parametrize("part", [green_list(bias=0), green_list(ratio=0.01)])
def test_no_green_tokens(part) -> None:
    run, _ = rows_of([[1]], [[]], 64)
    assert part.bind(run) is None


GREEN_SCHEMES = [
    {"hashing_key": 15485863, "seeding_scheme": "lefthash", "context_width": 1},
    {"hashing_key": 2**40 + 1, "seeding_scheme": "lefthash", "context_width": 3},
    {"hashing_key": 15485863, "seeding_scheme": "selfhash", "context_width": 1},
    {"hashing_key": 2**50 + 7, "seeding_scheme": "selfhash", "context_width": 3},
]
_texts = st.lists(st.integers(0, 63), min_size=3, max_size=6)
few = settings(max_examples=settings.default.max_examples // 10)


@pytest.mark.parametrize("scheme", GREEN_SCHEMES)
@few
@given(text=_texts, seed=st.integers(0, 2**32 - 1), ratio=st.sampled_from([0.25, 0.5]))
def test_green_lists_as_transformers(scheme, text, seed, ratio) -> None:
    """Two rows; the large keys overflow 64 bits, and must do so in the same way."""
    theirs = theirs_of(ratio=ratio, **scheme)
    part = green_list(
        ratio=ratio,
        hashing_key=scheme["hashing_key"],
        seeding=scheme["seeding_scheme"],
        context_width=scheme["context_width"],
    )
    texts = [text, text[::-1]]
    logits = torch.randn(2, 64, generator=torch.Generator().manual_seed(seed)) * 3
    ours = apply([part], logits, prompts=texts, generated=[[], []])
    assert torch.equal(ours, theirs(torch.tensor(texts), logits))


_made: dict[int, generation.WatermarkLogitsProcessor] = {}


def theirs_of(ratio: float, **scheme) -> generation.WatermarkLogitsProcessor:
    """Making one takes a shuffle of a million numbers, which is kept for each key."""
    key = scheme["hashing_key"]
    if key not in _made:
        _made[key] = generation.WatermarkLogitsProcessor(64, "cpu", **scheme)
    theirs = _made[key]
    theirs.greenlist_size = int(64 * ratio)
    theirs.seeding_scheme = scheme["seeding_scheme"]
    theirs.context_width = scheme["context_width"]
    return theirs


def test_the_detector_of_transformers_finds_the_mark() -> None:
    model = ScriptedModel(torch.zeros(1, 64))
    config = WatermarkingConfig(greenlist_ratio=0.25, bias=2.0)
    detector = WatermarkDetector(
        PretrainedConfig(vocab_size=64, bos_token_id=64), "cpu", config.to_dict()
    )
    for processors, found in ([green_list()], True), ([], False):
        pipeline = Pipeline(model, processors=processors, sampler=Categorical())
        result = pipeline.generate([1], seed=3, max_new_tokens=120)
        assert bool(detector(torch.tensor([[1, *result.token_ids]]))[0]) is found


# SynthID.


def test_the_first_round_by_hand() -> None:
    """Winners get ``p * (2 - mass of the winners)``, the others ``p * (1 - mass)``."""
    part = synthid(keys=[5], ngram_len=2)
    run, state = rows_of([[1]], [[]], 4)
    bound = part.bind(run)
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4])
    found = bound(state, probs.log()[None]).exp()[0]
    bits = (found > probs).float()
    assert 0 < bits.sum() < 4
    mass = float((bits * probs).sum())
    torch.testing.assert_close(found, probs * (1 + bits - mass))
    assert float(found.sum()) == pytest.approx(1)


def test_on_average_over_keys_nothing_changes() -> None:
    probs = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    found = [marked(synthid(keys=[k, k + 1]), [0], probs.log()).exp() for k in range(0, 3000, 2)]
    assert (torch.cat(found).mean(0) - probs[0]).abs().max() < 0.02


def test_the_prompt_is_not_hashed() -> None:
    part = synthid(ngram_len=3)
    assert torch.equal(marked(part, [], prompt=[3, 4]), marked(part, [], prompt=[9]))
    assert torch.equal(marked(part, [5], prompt=[3]), marked(part, [5], prompt=[9, 9, 9]))
    assert not torch.equal(marked(part, [5], prompt=[3]), marked(part, [6], prompt=[3]))


def test_a_context_is_marked_once() -> None:
    part = synthid(ngram_len=3)
    assert not torch.equal(marked(part, [1, 2, 3], prompt=[0]), SPREAD)
    assert torch.equal(marked(part, [1, 2, 3, 1, 2], prompt=[0]), SPREAD)
    short = synthid(ngram_len=3, context_history_size=2)
    assert not torch.equal(marked(short, [1, 2, 3, 1, 2], prompt=[0]), SPREAD)
    assert torch.equal(marked(short, [1, 2, 1, 2], prompt=[0]), SPREAD)
    none = synthid(ngram_len=3, context_history_size=0)
    assert not torch.equal(marked(none, [1, 2, 1, 2], prompt=[0]), SPREAD)


def test_the_first_tokens_may_stay_unmarked() -> None:
    part = synthid(ngram_len=4, skip_first_ngram_calls=True)
    unmarked = [torch.equal(marked(part, [1, 2, 3, 4][:n], prompt=[0]), SPREAD) for n in range(5)]
    assert unmarked == [True, True, True, False, False]


def test_what_is_hardly_possible_stays_possible() -> None:
    """A probability of 1e-200, whose winners have all but nothing or all but everything."""
    logits = torch.tensor([[0.0, -460.0, -460.0, -460.0, -INF]])
    for key in range(20):
        out = marked(synthid(keys=[key] * 3), [1], logits, prompt=[0])[0]
        assert out.isfinite().tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("row", [[-INF] * 4, [-INF, 2.0, -INF, -INF]])
def test_rows_with_one_token_or_none(row) -> None:
    expected = [0.0 if logit > -INF else -INF for logit in row]
    assert process(synthid(), row) == expected


_settings = st.fixed_dictionaries(
    {
        "ngram_len": st.integers(2, 5),
        "keys": st.lists(st.integers(0, 2**40), min_size=1, max_size=5),
        "sampling_table_size": st.sampled_from([16, 1000]),
        "sampling_table_seed": st.integers(0, 3),
        "context_history_size": st.sampled_from([1, 2, 1024]),
        "skip_first_ngram_calls": st.booleans(),
    }
)


@few
@given(_settings, st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=12))
def test_synthid_as_transformers(options, steps) -> None:
    """Two rows of few different tokens, so that contexts come again."""
    theirs = generation.SynthIDTextWatermarkLogitsProcessor(device="cpu", **options)
    run, state = rows_of([[1], [2]], [[], []], 64)
    bound = synthid(**options).bind(run)
    logits = torch.cat((SPREAD, SPREAD.flip(1)))
    for next_ids in [*steps, [0, 0]]:
        found, expected = bound(state, logits), theirs(state.token_ids, logits)
        assert torch.equal((found == logits).all(-1), (expected == logits).all(-1))
        assert (found.softmax(-1) - expected.softmax(-1)).abs().max() < 2e-6
        state.append(torch.tensor(next_ids))


def test_it_may_be_asked_twice_for_one_token() -> None:
    """transformers takes every call for a token."""
    run, state = rows_of([[1]], [[4, 4]], 64)
    bound = synthid().bind(run)
    assert torch.equal(bound(state, SPREAD), bound(state, SPREAD))


def test_marked_tokens_carry_ones() -> None:
    """The mean of their bits is well above one half, as transformers counts them."""
    scheme = {"ngram_len": 3, "sampling_table_size": 2**16, "sampling_table_seed": 0}
    theirs = generation.SynthIDTextWatermarkLogitsProcessor(
        keys=KEYS, context_history_size=1024, device="cpu", **scheme
    )
    model = ScriptedModel(torch.zeros(1, 64))
    means = []
    for processors in [synthid(**scheme)], []:
        pipeline = Pipeline(model, processors=processors, sampler=Categorical())
        ids = torch.tensor([pipeline.generate([1], seed=5, max_new_tokens=200).token_ids])
        means.append(float(theirs.compute_g_values(ids).float().mean()))
    assert means[0] > 0.6 and abs(means[1] - 0.5) < 0.03


# Both.


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"type": "green_list", "ratio": 1}, "scheme.ratio: .*found 1"),
        ({"type": "green_list", "ratio": 0}, "scheme.ratio: .*found 0"),
        ({"type": "green_list", "bias": INF}, "scheme.bias: .*found inf"),
        ({"type": "green_list", "bias": 1e7}, "scheme.bias: .*found 10000000.0"),
        ({"type": "green_list", "seeding": "righthash"}, "scheme.seeding: .*found 'righthash'"),
        ({"type": "green_list", "context_width": 0}, "scheme.context_width: .*found 0"),
        ({"type": "green_list", "hashing_key": 2**63}, "scheme.hashing_key: "),
        ({"type": "green_list", "keys": [1]}, "scheme: there is no option 'keys'.*: bias, cont"),
        ({"type": "synthid"}, "scheme.keys: this option is required"),
        ({"type": "synthid", "keys": []}, "scheme.keys: at least 1 is needed"),
        ({"type": "synthid", "keys": [1, -1]}, "scheme.keys.1: .*found -1"),
        ({"type": "synthid", "keys": [1], "ngram_len": 1}, "scheme.ngram_len: .*found 1"),
        (
            {"type": "synthid", "keys": [1], "sampling_table_size": 2**25},
            "scheme.sampling_table_size: ",
        ),
        ({"type": "gumbel"}, "scheme: .*'gumbel'.*'green_list', 'synthid'"),
        ({"ratio": 0.5}, "scheme: .*discriminator 'type'"),
        ("green_list", "scheme: .*found 'green_list'"),
    ],
)
def test_wrong_options_are_named(scheme, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Watermark(scheme=scheme)


def test_a_scheme_may_be_an_object() -> None:
    scheme = green_list(ratio=0.5).scheme
    assert Watermark(scheme=scheme) == green_list(ratio=0.5)


@pytest.mark.parametrize(
    "part",
    [
        green_list(ratio=0.5),
        green_list(ratio=0.5, bias=-3, context_width=2),
        green_list(ratio=0.5, seeding="selfhash", context_width=2),
        synthid(keys=[1, 2, 3], ngram_len=2),
        synthid(ngram_len=3, skip_first_ngram_calls=True, context_history_size=2),
    ],
    ids=lambda part: part.scheme.type,
)
def test_laws(part) -> None:
    check_logits_processor(part, max_examples=5)


@pytest.mark.parametrize("part", [green_list(ratio=0.5), synthid()])
def test_marks_after_a_truncation_are_among_what_is_left(part) -> None:
    truncated = apply([TopK(k=5)], SPREAD, prompts=[[1]], generated=[[]])
    out = apply([part], truncated, prompts=[[1]], generated=[[]])
    assert torch.equal(out.isfinite(), truncated.isfinite())
