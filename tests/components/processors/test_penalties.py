"""Penalties on tokens that came already: by hand, from the definition, against transformers."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import generation

from genkit.components.base import LogitsProcessor
from genkit.components.processors import (
    FrequencyPenalty,
    PresencePenalty,
    PromptRepetitionPenalty,
    RepetitionPenalty,
)
from genkit.components.stopping import MaxNewTokens
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import OptionError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, TinyModel, check_logits_processor, process
from journeys import MOST_IDS, follow, journeys, run_of
from vectors import apply

INF = math.inf
EACH = [
    RepetitionPenalty(penalty=1.5),
    RepetitionPenalty(penalty=0.7, scope="output", positive="reciprocal"),
    RepetitionPenalty(penalty=1.3, scope="prompt", window=2),
    RepetitionPenalty(penalty=1.3, window=3, base="logprobs"),
    PresencePenalty(penalty=0.75),
    PresencePenalty(penalty=-0.5, scope="all", window=2),
    FrequencyPenalty(penalty=0.3),
    FrequencyPenalty(penalty=0.3, presence=0.4, scope="all", window=3),
    FrequencyPenalty(penalty=-0.5, scope="prompt"),
    FrequencyPenalty(penalty=0, presence=0.4),
    PromptRepetitionPenalty(penalty=1.5),
]


@pytest.mark.parametrize("part", EACH, ids=repr)
def test_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=6)


# By hand.

ROW = [4.0, -4.0, 3.0, 0.0]
PROMPT, ANSWER = [1, 0, 1], [2, 0, 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2.0, -8.0, 1.5, 0.0]),
        ({"scope": "output"}, [2.0, -4.0, 1.5, 0.0]),
        ({"scope": "prompt"}, [2.0, -8.0, 3.0, 0.0]),
        ({"window": 1}, [4.0, -4.0, 1.5, 0.0]),
        ({"window": 2}, [2.0, -4.0, 1.5, 0.0]),
        ({"window": 4}, [2.0, -8.0, 1.5, 0.0]),
        ({"scope": "output", "window": 9}, [2.0, -4.0, 1.5, 0.0]),
        ({"scope": "prompt", "window": 1}, [4.0, -8.0, 3.0, 0.0]),
    ],
)
def test_repetition_penalty_acts_once_on_the_tokens_in_scope(options, expected) -> None:
    part = RepetitionPenalty(penalty=2.0, **options)
    assert process(part, ROW, prompt=PROMPT, generated=ANSWER) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3.5, -4.0, 2.5, 0.0]),
        ({"scope": "all"}, [3.5, -4.5, 2.5, 0.0]),
        ({"scope": "prompt"}, [3.5, -4.5, 3.0, 0.0]),
        ({"scope": "all", "window": 1}, [4.0, -4.0, 2.5, 0.0]),
    ],
)
def test_presence_penalty_takes_the_same_however_often(options, expected) -> None:
    part = PresencePenalty(penalty=0.5, **options)
    assert process(part, ROW, prompt=PROMPT, generated=ANSWER) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3.5, -4.0, 2.0, 0.0]),
        ({"scope": "all"}, [3.0, -5.0, 2.0, 0.0]),
        ({"scope": "prompt"}, [3.5, -5.0, 3.0, 0.0]),
        ({"scope": "all", "window": 4}, [3.5, -4.5, 2.0, 0.0]),
        ({"presence": 1.0}, [2.5, -4.0, 1.0, 0.0]),
    ],
)
def test_frequency_penalty_takes_something_for_each_time(options, expected) -> None:
    part = FrequencyPenalty(penalty=0.5, **options)
    assert process(part, ROW, prompt=PROMPT, generated=ANSWER) == expected


def test_prompt_repetition_penalty_favours_the_prompt_alone() -> None:
    part = PromptRepetitionPenalty(penalty=2.0)
    assert process(part, ROW, prompt=PROMPT, generated=ANSWER) == [8.0, -2.0, 3.0, 0.0]
    discouraging = PromptRepetitionPenalty(penalty=0.5)
    assert process(discouraging, ROW, prompt=PROMPT) == [2.0, -8.0, 3.0, 0.0]


def test_log_probabilities_are_all_negative() -> None:
    """With the penalty 2 the log-probability doubles, whatever the sign of the logit."""
    part = RepetitionPenalty(penalty=2.0, base="logprobs")
    logits = [math.log(8) + 3, math.log(4) + 3, math.log(4) + 3, -INF]
    found = process(part, logits, prompt=[0, 3])
    assert found == pytest.approx([2 * math.log(0.5), math.log(0.25), math.log(0.25), -INF], 1e-4)


# The last bit.


def as_float32(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_a_reciprocal_is_not_always_a_quotient() -> None:
    logits, penalty = torch.arange(1, 1001, dtype=torch.float32).unsqueeze(0), 1.1
    [divided], [multiplied] = (
        apply(
            [RepetitionPenalty(penalty=penalty, positive=positive)],
            logits,
            prompts=[list(range(1000))],
            generated=[[]],
        )
        for positive in ("divide", "reciprocal")
    )
    assert torch.equal(divided, logits[0] / as_float32(penalty))
    assert torch.equal(multiplied, logits[0] * (1 / as_float32(penalty)))
    assert 0 < int((divided != multiplied).sum()) < 500


def test_one_subtraction_is_not_always_two() -> None:
    logits = torch.linspace(-9, 9, 1000).unsqueeze(0)
    rows = {"prompts": [[]], "generated": [list(range(1000)) * 3]}
    [at_once] = apply([FrequencyPenalty(penalty=0.3, presence=0.4)], logits, **rows)
    parts = [FrequencyPenalty(penalty=0.3), PresencePenalty(penalty=0.4)]
    [in_turn] = apply(parts, logits, **rows)
    assert torch.equal(at_once, logits[0] - (as_float32(3) * as_float32(0.3) + as_float32(0.4)))
    assert 0 < int((at_once != in_turn).sum()) < 1000
    torch.testing.assert_close(at_once, in_turn)


# From the definition, whatever happens to the rows.

_options = {
    "scope": st.sampled_from(["all", "output", "prompt"]),
    "window": st.none() | st.integers(1, 8),
}
_parts = st.one_of(
    st.builds(RepetitionPenalty, penalty=st.sampled_from([0.5, 1.25, 3.0]), **_options),
    st.builds(PresencePenalty, penalty=st.sampled_from([-0.5, 0.3]), **_options),
    st.builds(
        FrequencyPenalty,
        penalty=st.sampled_from([-0.5, 0.3]),
        presence=st.sampled_from([0, 0.2]),
        **_options,
    ),
    st.builds(PromptRepetitionPenalty, penalty=st.sampled_from([0.5, 1.25])),
)


def defined(part, logit: float, count: int) -> float:
    if count == 0:
        return logit
    if isinstance(part, PresencePenalty):
        return logit - part.penalty
    if isinstance(part, FrequencyPenalty):
        return logit - (count * part.penalty + part.presence)
    penalty = 1 / part.penalty if isinstance(part, PromptRepetitionPenalty) else part.penalty
    return logit * penalty if logit < 0 else logit / penalty


@settings(max_examples=100)
@given(journeys(), _parts)
def test_every_penalty_is_what_it_is_defined_to_be(journey, part) -> None:
    logits = torch.tensor([2.5, -1.0, 0.0, -INF, -0.25, 7.0], dtype=torch.float64)
    for bound, state, prompts, answers in follow(part.bind, journey):
        given_ = logits.expand(len(prompts), -1).clone()
        found = bound(state, given_)
        assert torch.equal(given_, logits.expand(len(prompts), -1))
        for row, prompt, answer in zip(found.tolist(), prompts, answers, strict=True):
            scope = getattr(part, "scope", "prompt")
            ids = {"all": prompt + answer, "output": answer, "prompt": prompt}[scope]
            window = getattr(part, "window", None)
            counts = Counter(ids if window is None else ids[-window:])
            expected = [defined(part, x, counts[i]) for i, x in enumerate(logits.tolist())]
            assert row == pytest.approx(expected, rel=1e-14)


# Against transformers' own classes.

_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_logits = st.lists(st.lists(_values, min_size=9, max_size=9), min_size=1, max_size=3)
_penalties = st.floats(0.125, 5, width=32).filter(lambda penalty: penalty != 1)


@settings(max_examples=60)
@given(_logits, _penalties, st.data())
def test_repetition_penalty_as_transformers(logits, penalty, data) -> None:
    """Bit for bit; its prompt may be left out."""
    size = data.draw(st.integers(1, 12))
    ids = st.lists(st.integers(0, 8), min_size=size, max_size=size)
    history = data.draw(st.lists(ids, min_size=len(logits), max_size=len(logits)))
    length = data.draw(st.integers(0, size))
    ours = apply(
        [RepetitionPenalty(penalty=penalty, scope="output")],
        torch.tensor(logits),
        prompts=[row[:length] for row in history],
        generated=[row[length:] for row in history],
    )
    theirs = generation.RepetitionPenaltyLogitsProcessor(penalty, prompt_ignore_length=length)
    assert torch.equal(ours, theirs(torch.tensor(history), torch.tensor(logits)))


@settings(max_examples=60)
@given(_logits, _penalties, st.lists(st.integers(0, 8), min_size=1, max_size=12))
def test_prompt_repetition_penalty_as_transformers(logits, penalty, prompt) -> None:
    ours = apply(
        [PromptRepetitionPenalty(penalty=penalty)],
        torch.tensor(logits),
        prompts=[prompt] * len(logits),
        generated=[[3, 4]] * len(logits),
    )
    prompts = torch.tensor([prompt] * len(logits))
    theirs = generation.EncoderRepetitionPenaltyLogitsProcessor(penalty, prompts)
    assert torch.equal(ours, theirs(prompts, torch.tensor(logits)))


# Edges.


@pytest.mark.parametrize("part", EACH, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges(part: LogitsProcessor, dtype) -> None:
    rows = [
        [-INF, -INF, -INF, -INF],  # nothing is allowed
        [-INF, 2.0, -INF, -INF],
        [1.0, 1.0, 1.0, 1.0],
        [1e30, -1e30, 1e-30, -1e-30],
        [0.0, -0.0, 0.0, -0.0],
    ]
    logits = torch.tensor(rows, dtype=dtype)
    histories = {"prompts": [[1, 2]] * 5, "generated": [[2, 3]] * 5}
    found = apply([part], logits, **histories)
    assert found.dtype == dtype and not found.isnan().any()
    assert torch.equal(found == -INF, logits == -INF)
    strided = torch.stack((logits, logits), 1)[:, 1]
    assert torch.equal(apply([part], strided, **histories), found)


@pytest.mark.parametrize("part", EACH, ids=repr)
def test_a_vocabulary_of_one(part: LogitsProcessor) -> None:
    found = apply([part], torch.tensor([[3.0]]), prompts=[[0, 0]], generated=[[0]])
    assert found.shape == (1, 1) and found.isfinite().all()


def test_nothing_has_come_yet() -> None:
    logits = torch.tensor([[3.0, -1.0]])
    for part in EACH:
        if getattr(part, "base", "logits") == "logits":
            assert torch.equal(apply([part], logits, prompts=[[]], generated=[[]]), logits)


@pytest.mark.parametrize(
    "part",
    [
        RepetitionPenalty(penalty=1),
        RepetitionPenalty(penalty=1.0, base="logprobs"),
        RepetitionPenalty(penalty=2.0, window=0),
        PresencePenalty(penalty=0),
        PresencePenalty(penalty=1, window=0),
        FrequencyPenalty(penalty=0),
        FrequencyPenalty(penalty=1, presence=1, window=0),
        PromptRepetitionPenalty(penalty=1),
    ],
    ids=repr,
)
def test_what_is_neutral_is_not_there(part: LogitsProcessor) -> None:
    assert part.bind(run_of([1, 2])) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RepetitionPenalty(), "penalty: this option is required"),
        (lambda: RepetitionPenalty(penalty=0), "penalty: .*found 0"),
        (lambda: RepetitionPenalty(penalty=-1), "penalty: .*found -1"),
        (lambda: RepetitionPenalty(penalty=1e-30), "penalty: .*found 1e-30"),
        (lambda: RepetitionPenalty(penalty=2, scope="answer"), "scope: .*'output'.*found 'answer'"),
        (lambda: RepetitionPenalty(penalty=2, window=-1), "window: .*equal to 0, found -1"),
        (lambda: RepetitionPenalty(penalty=2, positive="both"), "positive: .*'reciprocal'"),
        (lambda: RepetitionPenalty(penalty=2, base="probs"), "base: .*'logprobs'"),
        (lambda: PresencePenalty(penalty=math.nan), "penalty: .*found nan"),
        (lambda: FrequencyPenalty(penalty=math.inf), "penalty: .*found inf"),
        (lambda: FrequencyPenalty(presence=1), "penalty: this option is required"),
        (lambda: PromptRepetitionPenalty(penalty=0), "penalty: .*found 0"),
    ],
)
def test_wrong_options_are_named(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize("part", EACH, ids=repr)
def test_no_step_waits_for_the_device(part: LogitsProcessor) -> None:
    """On the device `meta` there are shapes and no values: asking for one is an error."""
    meta = torch.device("meta")
    bound = part.bind(replace(run_of([1, 2], [0]), device=meta))
    state = GenerationState([[1, 2], [0]], [9, 9], RowRandom([0, 0], [0, 0]), device=meta)
    logits = torch.zeros(2, MOST_IDS, device=meta)
    for _ in range(3):
        assert bound(state, logits).shape == logits.shape
        state.append(torch.zeros(2, dtype=torch.int64, device=meta))
    bound.rewind(2)
    bound.reorder([1, 0])
    assert bound(state, logits).device == meta


# In whole runs.


@pytest.mark.parametrize("eos", [(), (0,)])
def test_padding_is_never_in_the_history(eos) -> None:
    """REP-03: padding is id 0 in the rectangle, which is the best token here, or the end, too."""
    model = ScriptedModel([[4.0, 3.0, 2.0, 1.0, 1.5]], eos_token_ids=eos)
    pipeline = Pipeline(
        model,
        processors=[RepetitionPenalty(penalty=2.0), FrequencyPenalty(penalty=0.9, scope="all")],
        stop_criteria=[MaxNewTokens(limit=4)],
    )
    prompts = [[1], [2, 1, 0, 3, 2]]
    together = [result.token_ids for result in pipeline.generate(prompts)]
    assert together == [pipeline.generate([prompt])[0].token_ids for prompt in prompts]
    assert together[0][0] == 0  # not penalised: it is padding in front of the row, not a token
    assert together[1][0] != 0  # penalised: in this row it is a token


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        (RepetitionPenalty(penalty=2.0), {"penalty": 1.05}),
        (RepetitionPenalty(penalty=2.0), {"scope": "output"}),
        (RepetitionPenalty(penalty=2.0), {"window": 1}),
        (RepetitionPenalty(penalty=1.5), {"base": "logprobs"}),
        (PresencePenalty(penalty=2.0), {"penalty": 0.1}),
        (PresencePenalty(penalty=2.0), {"scope": "all"}),
        (PresencePenalty(penalty=2.0), {"window": 1}),
        (FrequencyPenalty(penalty=0.6), {"penalty": 0.1}),
        (FrequencyPenalty(penalty=0.6), {"presence": 2.0}),
        (FrequencyPenalty(penalty=0.6), {"scope": "all"}),
        (FrequencyPenalty(penalty=0.6), {"window": 1}),
        (PromptRepetitionPenalty(penalty=0.5), {"penalty": 0.9}),
    ],
    ids=repr,
)
def test_every_option_changes_the_tokens(part: LogitsProcessor, changed) -> None:
    """REP-06: the answer is another one without the part, and with another value of the option."""
    model = ScriptedModel([[2.0, 1.5, 1.4, 0.3]])
    other = type(part)(**{**part.model_dump(exclude={"type"}), **changed})
    answers = [
        Pipeline(model, processors=processors, stop_criteria=[MaxNewTokens(limit=8)])
        .generate([1, 0, 3])
        .token_ids
        for processors in ([], [part], [other])
    ]
    assert answers[1] not in (answers[0], answers[2])


def test_whatever_model_gives_the_logits_the_penalty_is_the_same() -> None:
    """REP-07: it stands between the raw logits and the processed ones, whatever the backend."""
    part = FrequencyPenalty(penalty=0.7, presence=0.1, scope="all", window=6)
    for model in (TinyModel(), ScriptedModel(torch.randn(5, 9), tokenizer=None)):
        pipeline = Pipeline(model, processors=[part], stop_criteria=[MaxNewTokens(limit=6)])
        ids = [3, 1, 3, 7]
        for step in pipeline.decode(list(ids)):
            counts = torch.zeros_like(step.raw_logits)
            for token_id in ids[-6:]:
                counts[0, token_id] += 1
            penalties = counts * 0.7 + 0.1 * (counts > 0)
            torch.testing.assert_close(step.logits, step.raw_logits - penalties)
            ids += step.next_ids.tolist()
