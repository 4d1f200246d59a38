"""Bans of n-grams: by hand, from the definition, against transformers, and in whole runs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import generation

from genkit.components.base import LogitsProcessor
from genkit.components.processors import NoRepeatNGram, PromptNoRepeatNGram
from genkit.components.stopping import MaxNewTokens
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import EmptyRowError, OptionError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, check_logits_processor, process
from journeys import MOST_IDS, follow, journeys, run_of
from vectors import apply

INF = math.inf
EACH = [
    *(NoRepeatNGram(n=n) for n in (1, 2, 3)),
    *(NoRepeatNGram(n=n, scope="output") for n in (1, 2)),
    *(PromptNoRepeatNGram(n=n) for n in (1, 2, 3)),
]


@pytest.mark.parametrize("part", EACH, ids=repr)
def test_laws(part: LogitsProcessor) -> None:
    check_logits_processor(part, max_examples=6)


# By hand.


def banned(part, prompt, generated=()) -> list[int]:
    out = process(part, [0.0] * 4, prompt=prompt, generated=generated)
    return [i for i, logit in enumerate(out) if logit == -INF]


@pytest.mark.parametrize(
    ("n", "prompt", "generated", "ids"),
    [
        (1, [0, 2, 2], [], [0, 2]),
        (1, [0], [2, 1], [0, 1, 2]),
        (2, [0, 1, 0], [], [1]),
        (2, [0, 1, 0], [2, 0], [1, 2]),
        (2, [0, 1], [2], []),
        (2, [0], [], []),
        (2, [0, 0], [], [0]),
        (3, [0, 1, 2, 3, 0, 1], [], [2]),
        (3, [0, 1, 2, 3], [1, 0], []),
        (3, [0, 1], [], []),
        (3, [0, 1, 2], [0, 1], [2]),
        (4, [1, 1, 1], [1], [1]),
        (4, [1, 1, 1], [], []),
        (9, [1], [], []),
    ],
)
def test_what_would_complete_an_ngram_again_is_forbidden(n, prompt, generated, ids) -> None:
    assert banned(NoRepeatNGram(n=n), prompt, generated) == ids


@pytest.mark.parametrize(
    ("n", "prompt", "generated", "ids"),
    [
        (1, [0, 1], [], []),
        (1, [0, 1], [2], [2]),
        (2, [0, 1], [0], []),  # 0 1 is of the prompt
        (2, [0], [1, 0], []),  # 0 1 is begun by the prompt
        (2, [0], [0, 1, 0], [1]),
    ],
)
def test_with_the_scope_output_the_prompt_is_not_there(n, prompt, generated, ids) -> None:
    assert banned(NoRepeatNGram(n=n, scope="output"), prompt, generated) == ids


@pytest.mark.parametrize(
    ("n", "prompt", "generated", "ids"),
    [
        (1, [0, 2], [1], [0, 2]),
        (2, [0, 1, 0], [], [1]),
        (2, [0, 1, 0, 2], [3, 0], [1, 2]),
        (2, [0, 1], [0, 2, 0], [1]),  # 0 2 is of the answer
        (3, [0, 1, 2, 0], [1], [2]),  # 0 1 lies across the border
        (3, [0], [1], []),
    ],
)
def test_only_the_prompt_forbids(n, prompt, generated, ids) -> None:
    assert banned(PromptNoRepeatNGram(n=n), prompt, generated) == ids


def test_the_other_logits_stay_as_they_are() -> None:
    logits = torch.tensor([[3.0, -INF, -0.0, 1e30], [-INF, -INF, -INF, -INF]], dtype=torch.float64)
    rows = {"prompts": [[0, 3, 0]] * 2, "generated": [[]] * 2}
    found = apply([NoRepeatNGram(n=2)], logits, **rows)
    assert found.tolist() == [[3.0, -INF, 0.0, -INF], [-INF] * 4] and found.dtype == torch.float64
    strided = torch.stack((logits, logits), 1)[:, 1]
    assert torch.equal(apply([NoRepeatNGram(n=2)], strided, **rows), found)


def test_a_vocabulary_of_one() -> None:
    assert process(NoRepeatNGram(n=2), [1.0], prompt=[0]) == [1.0]
    assert process(NoRepeatNGram(n=2), [1.0], prompt=[0, 0]) == [-INF]


@pytest.mark.parametrize("part", [NoRepeatNGram, PromptNoRepeatNGram])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "n: this option is required"),
        ({"n": 0}, "n: .*equal to 1, found 0"),
        ({"n": 2.5}, "n: .*found 2.5"),
        ({"n": 2, "scope": "prompt"}, "scope: "),
    ],
)
def test_wrong_options_are_named(part, options, message) -> None:
    with pytest.raises(OptionError, match=message):
        part(**options)


# From the definition, whatever happens to the rows.


def by_definition(part, prompt: list[int], answer: list[int]) -> set[int]:
    n = part.n
    if isinstance(part, PromptNoRepeatNGram):
        source, text = prompt, prompt + answer
    else:
        source = text = answer if part.scope == "output" else prompt + answer
    if len(text) < n - 1:
        return set()
    ngrams = {tuple(source[i : i + n]) for i in range(len(source) - n + 1)}
    return {i for i in range(MOST_IDS) if (*text[len(text) - n + 1 :], i) in ngrams}


_parts = st.one_of(
    st.builds(NoRepeatNGram, n=st.integers(1, 4), scope=st.sampled_from(["all", "output"])),
    st.builds(PromptNoRepeatNGram, n=st.integers(1, 4)),
)


@settings(max_examples=100)
@given(journeys(), _parts)
def test_each_row_has_the_bans_of_its_own_ids(journey, part) -> None:
    """Rows may change places, leave, be copied and be shortened, as with beams."""
    for bound, state, prompts, answers in follow(part.bind, journey):
        found = bound(state, torch.zeros(len(prompts), MOST_IDS))
        for row, prompt, answer in zip(found, prompts, answers, strict=True):
            forbidden = set((row == -INF).nonzero()[:, 0].tolist())
            assert forbidden == by_definition(part, prompt, answer)


def test_beams_that_change_places_keep_their_bans() -> None:
    """NGRAM-03: three beams of one prompt, each with its own tokens; in step 3 they swap."""
    part = NoRepeatNGram(n=2)
    bound = part.bind(run_of([0], [0], [0]))
    state = GenerationState([[0]] * 3, [99] * 3, RowRandom([0] * 3, [0] * 3))
    answers: list[list[int]] = [[], [], []]
    steps = [[1, 2, 3], [0, 0, 4], [2, 1, 3], [0, 3, 2], [1, 0, 0], [0, 4, 1]]
    for i, next_ids in enumerate(steps):
        found = bound(state, torch.zeros(3, MOST_IDS)) == -INF
        for row, answer in zip(found, answers, strict=True):
            assert set(row.nonzero()[:, 0].tolist()) == by_definition(part, [0], answer)
        state.append(torch.tensor(next_ids))
        answers = [[*answer, next_id] for answer, next_id in zip(answers, next_ids, strict=True)]
        if i == 3:
            beams = [2, 0, 2]
            state.reorder(beams)
            bound.reorder(beams)
            answers = [answers[beam] for beam in beams]


# Against transformers' own classes.


@st.composite
def rows_of_one_length(draw) -> list[list[int]]:
    size = draw(st.integers(1, 14))
    row = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    return draw(st.lists(row, min_size=1, max_size=3))


@settings(max_examples=100)
@given(rows_of_one_length(), st.integers(1, 4), st.integers(0, 14))
def test_as_transformers(rows, n, length) -> None:
    logits = torch.linspace(-2, 2, 5 * len(rows)).view(len(rows), 5)
    ids = torch.tensor(rows)
    history = {
        "prompts": [row[:length] for row in rows],
        "generated": [row[length:] for row in rows],
    }
    theirs = generation.NoRepeatNGramLogitsProcessor(n)(ids, logits)
    assert torch.equal(apply([NoRepeatNGram(n=n)], logits, **history), theirs)
    encoder = generation.EncoderNoRepeatNGramLogitsProcessor(n, ids[:, :length])
    assert torch.equal(apply([PromptNoRepeatNGram(n=n)], logits, **history), encoder(ids, logits))


# In whole runs.


def cycle(vocab_size: int) -> ScriptedModel:
    """A model that always prefers 1, 2, 3, 1, 2, 3, ..."""
    return ScriptedModel.of_ids([1, 2, 3] * 70, vocab_size)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("scope", ["all", "output"])
def test_no_ngram_comes_twice(n, scope) -> None:
    """NGRAM-01."""
    pipeline = Pipeline(
        cycle(220),
        processors=[NoRepeatNGram(n=n, scope=scope)],
        stop_criteria=[MaxNewTokens(limit=200)],
    )
    prompts = [[1], [3, 1, 2, 3, 0]]
    for prompt, result in zip(prompts, pipeline.generate(prompts), strict=True):
        assert len(result.token_ids) == 200
        text = result.token_ids if scope == "output" else prompt + result.token_ids
        ngrams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
        # What the prompt itself repeats cannot be helped.
        old = ngrams[: len(prompt) - n + 1] if scope == "all" and len(prompt) >= n else []
        new = ngrams[len(old) :]
        assert len(set(new)) == len(new) and not set(new) & set(old)


def test_the_prompt_does_not_come_back() -> None:
    parts = [PromptNoRepeatNGram(n=2)]
    pipeline = Pipeline(cycle(6), processors=parts, stop_criteria=[MaxNewTokens(limit=9)])
    answer = pipeline.generate([2, 3, 1, 3]).token_ids
    assert answer[0] == 0  # 3 1 is of the prompt
    pairs = list(zip([3, *answer], answer, strict=False))
    assert not {(2, 3), (3, 1), (1, 3)} & set(pairs)
    assert len(set(pairs)) < len(pairs)  # its own ones do


def test_no_token_left_is_an_error_that_names_the_part() -> None:
    """NGRAM-01: not one of the sampler."""
    pipeline = Pipeline(
        cycle(5), processors=[NoRepeatNGram(n=1)], stop_criteria=[MaxNewTokens(limit=9)]
    )
    with pytest.raises(EmptyRowError, match="no_repeat_ngram") as caught:
        pipeline.generate([0])
    assert caught.value.partial_results[0].token_ids == [1, 2, 3, 4]
