"""The laws of decoding hold for the parts that are built in, and say where they do not apply."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import settings

from genkit import Pipeline, caches, decoders, processors, samplers, stopping
from genkit.errors import MissingPackageError
from genkit.testing import (
    LAWS,
    Case,
    Law,
    TinyModel,
    check_backend,
    check_cache_manager,
    check_decoder,
)
from genkit.testing.checks.decoding import hold_to
from genkit.testing.checks.decoding_cases import ARCHITECTURES, long_trials
from genkit.testing.laws.comparison import Comparison
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.laws.shifted import Shifted
from genkit.testing.laws.trace import trace_run

MANAGERS: dict[str, list[Any]] = {
    "Dynamic": [caches.Dynamic()],
    "NoCache": [caches.NoCache()],
    "Prefix": [caches.Prefix(), caches.Prefix(max_bytes=30_000)],  # the second evicts all the time
    "Quantized": [caches.Quantized(bits=4, group_size=2)],
    "SinkWindow": [caches.SinkWindow(num_sinks=1, window=3)],
    "Static": [caches.Static()],
}
EVERY_MANAGER = [manager for managers in MANAGERS.values() for manager in managers]

# A case goes through fourteen laws, so the quick run gives all of the profile's examples to the
# default manager, and to each law that is about another one with that one; what is left gets a
# small part. `--all` gives them all.
SOME = settings.default.max_examples // 25

NOT_FOR_LOSSY = {
    "cached = uncached",
    "any prefill split",
    "crop then refill = never cropped",
    "prefix reuse = fresh",
    "kept for its own model",
    "memory is the run's own",
}
WITHOUT_LAYERS = {"memory is the run's own", "rounded once"}
SILENT = {
    "NoCache": WITHOUT_LAYERS,
    "Quantized": NOT_FOR_LOSSY,
    "SinkWindow": NOT_FOR_LOSSY | WITHOUT_LAYERS,
}


def by_name(name: str) -> list[Law]:
    return [law for law in LAWS if law.name == name]


def silent(verdicts) -> set[str]:
    return {verdict.law.name for verdict in verdicts if verdict.holds is None}


def test_every_manager_that_is_exported_is_checked():
    assert sorted(MANAGERS) == sorted(caches.__all__)


@pytest.mark.timeout(3600)
def test_the_default_manager_keeps_every_law():
    verdicts = check_cache_manager(caches.Dynamic())
    assert [v.law for v in verdicts] == list(LAWS)
    assert all(v.holds and v.finding.cases >= settings.default.max_examples for v in verdicts)
    assert sum(v.finding.excused for v in verdicts) == 0


MANY = [
    ("what is reused", by_name("prefix reuse = fresh"), {"manager": caches.Prefix()}),
    ("what is whose", by_name("kept for its own model"), {"manager": caches.Prefix()}),
    ("what is lent", by_name("memory is the run's own"), {"manager": caches.Prefix()}),
    ("what is rounded", by_name("rounded once"), {"manager": MANAGERS["Quantized"][0]}),
    ("a model", MODEL_LAWS, {"manager": caches.Dynamic()}),
    (
        "a decoder",
        (SAME_AS_THE_PLAIN_LOOP, *DECODER_LAWS),
        {"manager": caches.Dynamic(), "decoder": decoders.Autoregressive()},
    ),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("laws", "parts"), [c[1:] for c in MANY], ids=[c[0] for c in MANY])
def test_laws_are_kept_by_those_whom_they_are_about(laws, parts):
    verdicts = hold_to(laws, "it", **parts)
    assert [v.law for v in verdicts] == list(laws)
    assert all(v.holds and v.finding.cases >= settings.default.max_examples for v in verdicts)


@pytest.mark.parametrize("manager", EVERY_MANAGER, ids=repr)
def test_managers_keep_the_laws_of_their_grade(manager):
    verdicts = check_cache_manager(manager, max_examples=SOME)
    assert silent(verdicts) == SILENT.get(type(manager).__name__, set())
    assert sum(v.finding.excused + v.finding.beyond for v in verdicts) == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("manager", EVERY_MANAGER, ids=repr)
def test_managers_keep_the_laws_of_their_grade_in_many_cases(manager):
    verdicts = check_cache_manager(manager)
    assert silent(verdicts) == SILENT.get(type(manager).__name__, set())


def test_a_manager_is_checked_over_the_model_that_is_given():
    model = TinyModel(vocab_size=40, context_length=24)
    verdicts = check_cache_manager(caches.Prefix(), model, max_examples=SOME)
    assert silent(verdicts) == {"streamed = whole"}  # this model has no tokenizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_model_keeps_the_contract_in_every_precision(dtype):
    model = TinyModel(3, dtype=dtype, window=(3, None), eos_token_ids=range(0, 260, 9))
    verdicts = check_backend(model, max_examples=SOME)
    assert {verdict.holds for verdict in verdicts} == {True}


class OneRowAtATime(TinyModel):
    """As a recurrent model claims less."""

    def __init__(self):
        super().__init__(vocab_size=40, dtype=torch.float64)
        self.supports = frozenset({"reorder"})


def test_laws_whose_capability_is_lacking_are_silent():
    verdicts = check_backend(OneRowAtATime(), max_examples=SOME)
    assert silent(verdicts) == {
        "a failed forward changes nothing",
        "any left padding",
        "crop then refill = never cropped",
        "memory is the run's own",
        "rounded once",
        "streamed = whole",
    }
    (padding,) = (v for v in verdicts if v.law.name == "any left padding")
    assert padding.detail == "the model with the cache 'dynamic' does not support ragged"
    assert padding.finding.cases == 0


def test_what_a_manager_takes_away_is_not_said_of_the_model():
    [rounded_once] = by_name("rounded once")
    window = caches.SinkWindow(num_sinks=1, window=3)
    assert rounded_once.why_not(Pipeline(TinyModel(), cache=window)) == (
        "the cache 'sink_window' takes away layers"
    )


def test_a_shifted_model_is_another_one_with_the_same_functions():
    model = TinyModel(dtype=torch.float64)
    one, other = Shifted(model), Shifted(model, 2)
    plain, same, shifted = (
        trace_run(Pipeline(each), [(1, 2, 259)], [0], 1)[0].raw_logits[0]
        for each in (model, one, other)
    )
    assert torch.equal(plain, same)
    assert torch.equal(shifted, trace_run(Pipeline(model), [(3, 4, 1)], [0], 1)[0].raw_logits[0])
    assert one.fingerprint() != other.fingerprint()
    assert one.weights_version == other.weights_version
    before = one.weights_version
    one.offset = 1
    assert one.weights_version != before
    assert not hasattr(Shifted(object()), "fingerprint")
    assert not hasattr(Shifted(object()), "last")


def test_the_plain_loop_is_a_decoder():
    verdicts = check_decoder(decoders.Autoregressive(), max_examples=SOME)
    assert {verdict.holds for verdict in verdicts} == {True}


def test_decoders_of_their_own_kind_need_not_give_the_plain_tokens():
    verdicts = check_decoder(
        decoders.Autoregressive(), same_as_the_plain_loop=False, max_examples=1
    )
    assert "same as the plain loop" not in {verdict.law.name for verdict in verdicts}


def test_laws_hold_for_all_parts_together():
    pipeline = Pipeline(
        TinyModel(1, dtype=torch.float64),
        processors=[
            processors.RepetitionPenalty(penalty=1.5),
            processors.Temperature(temperature=0.7),
            processors.TopK(k=30),
            processors.TopP(p=0.9),
        ],
        sampler=samplers.Categorical(),
        stop_criteria=[stopping.StopStrings(strings=["e", "a", "\ufffd\ufffd"])],
    )
    cases = [Case(((65, 66, 67), (1, 2), (200, 67, 4, 3)), (1, 2, 3), 6, i) for i in range(4)]
    verdicts = [law.judge(pipeline, cases) for law in LAWS]
    assert {verdict.law.name for verdict in verdicts if not verdict.holds} == set()
    assert all(verdict.finding.cases == 4 for verdict in verdicts)


@pytest.mark.parametrize("architecture", range(len(ARCHITECTURES)))
def test_every_number_of_pads_gives_the_same(architecture):
    model = TinyModel(dtype=torch.float64, **ARCHITECTURES[architecture])
    pipeline, prompt = Pipeline(model), (7, 200, 3)
    alone = trace_run(pipeline, [prompt], [0], 4)
    compare = Comparison.of(pipeline)
    for num_pads in range(17):
        longer = tuple((31 * i + num_pads) % 260 for i in range(len(prompt) + num_pads))
        padded = trace_run(pipeline, [prompt, longer], [0, 0], 4)
        found = compare.rows(padded[:1], alone, f"{num_pads} pads")
        assert found.holds, found.summary


@pytest.mark.parametrize("manager", [caches.Dynamic(), caches.Static()], ids=repr)
def test_every_prompt_length_around_a_window_gives_the_same_with_and_without_a_cache(manager):
    model = TinyModel(2, window=8, num_layers=1, dtype=torch.float64)
    for length in range(1, 21):
        prompt = tuple((17 * i + length) % 260 for i in range(length))
        runs = [
            trace_run(Pipeline(model, cache=each), [prompt], [0], 12)
            for each in (manager, caches.NoCache())
        ]
        found = Comparison.of(Pipeline(model)).rows(*runs, f"length {length}")
        assert found.holds and found.decisions == 12, found.summary


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_window_counts_the_token_itself(window):
    model = TinyModel(window=window, num_layers=1, dtype=torch.float64)
    prompt = list(range(10))

    def logits(changed: int | None = None):
        ids = [99 if i == changed else token_id for i, token_id in enumerate(prompt)]
        return next(Pipeline(model).decode(ids)).raw_logits

    changes = [not torch.equal(logits(i), logits()) for i in range(10)]
    assert changes == [i >= 10 - window for i in range(10)]


def test_windows_are_one_for_each_layer():
    with pytest.raises(ValueError, match="window has 3 entries for 2 layers"):
        TinyModel(window=(1, 2, 3))


def test_an_exception_is_a_finding_like_any_other():
    def failing(state, logits):
        raise ValueError("no luck")

    case = Case(((1, 2),), (0,), 2)
    verdict = LAWS[0].judge(Pipeline(TinyModel(), processors=[failing]), [case, case])
    assert verdict.holds is False and verdict.finding.mismatches == 2
    assert "raised PartError" in verdict.detail and "no luck" in verdict.detail
    assert isinstance(verdict.finding.error, Exception)


def test_names_of_laws_are_unique_and_cases_are_cut_to_equal_lengths():
    assert len({law.name for law in LAWS}) == len(LAWS)
    case = Case(((1, 2, 3), (4, 5)), (0, 0), 1)
    assert case.of_equal_lengths().prompts == ((2, 3), (4, 5))
    assert case.random().random() == case.random().random()


def test_smaller_cases_have_less_of_one_thing_each():
    case = Case(((1, 2, 3, 4, 5), (6,)), (7, 8), 2, 9)
    assert list(case.smaller()) == [
        Case(((6,),), (8,), 2, 9),
        Case(((1, 2, 3, 4, 5),), (7,), 2, 9),
        Case(((5,), (6,)), (7, 8), 2, 9),
        Case(((3, 4, 5), (6,)), (7, 8), 2, 9),
        Case(((2, 3, 4, 5), (6,)), (7, 8), 2, 9),
        Case(((1, 2, 3, 4, 5), (6,)), (7, 8), 1, 9),
    ]
    assert list(Case(((1,),), (0,), 1).smaller()) == []


def test_long_cases_are_always_the_same_and_fit_into_the_context():
    first, again = ([t[1] for t in long_trials(None, None, None)] for _ in range(2))
    assert first == again
    lengths = [[len(prompt) for prompt in case.prompts] for case in first]
    assert lengths == [[3, 150], [70, 45], [110, 6, 60]]
    small = TinyModel(vocab_size=11, context_length=20)
    for pipeline, case in long_trials(small, caches.Static(), None):
        assert pipeline.model is small and pipeline.parts.cache == caches.Static()
        assert max(len(prompt) for prompt in case.prompts) == 15
        assert all(0 <= token_id < 11 for prompt in case.prompts for token_id in prompt)


def test_a_model_with_a_tiny_context_is_no_false_alarm():
    verdicts = check_backend(TinyModel(vocab_size=11, context_length=2), max_examples=2)
    assert silent(verdicts) == {"any left padding", "streamed = whole"}


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_cache_manager(caches.Dynamic()),
        lambda: check_backend(TinyModel()),
        lambda: check_decoder(decoders.Autoregressive()),
    ],
)
def test_checks_name_the_package_that_is_missing(check, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingPackageError, match="'hypothesis'.*pip install hypothesis"):
        check()


def test_laws_can_be_tried_without_hypothesis():
    script = (
        "import sys; sys.modules['hypothesis'] = None; "
        "from genkit import Pipeline; "
        "from genkit.testing import LAWS, Case, TinyModel; "
        "case = Case(((1, 2, 3), (4,)), (0, 1), 2); "
        "print(all(law.judge(Pipeline(TinyModel()), [case]).holds for law in LAWS))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert shown.stdout.split() == [b"True"]
