"""What depends on how long a row is: by hand, against transformers, and in whole runs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import generation

from genkit.components.processors import (
    BadWords,
    ForcedBos,
    ForcedEos,
    LengthDecay,
    MinLength,
    MinNewTokens,
    Temperature,
)
from genkit.components.stopping import Eos, MaxLength, MaxNewTokens, StopTokenIds
from genkit.errors import EmptyRowError, InputError, OptionError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, check_logits_processor, process
from vectors import apply

INF = math.inf
ROW = [1.0, 3.0, 2.0, 2.0]
END = 1  # the most probable token of ROW


def forbidden(part, row=ROW, **options) -> list[int]:
    out = process(part, row, eos=[END], **options)
    return [i for i, (before, after) in enumerate(zip(row, out, strict=True)) if before > after]


def answers(parts, prompts, criteria=None, row=ROW, **options) -> list[list[int]]:
    """What a model generates greedily that always gives the same logits."""
    model = ScriptedModel([row], eos_token_ids=[END])
    pipeline = Pipeline(model, processors=parts, stop_criteria=criteria or [Eos()])
    return [list(result.token_ids) for result in pipeline.generate(prompts, **options)]


# The least number of tokens.


def test_no_end_before_a_number_of_new_tokens() -> None:
    part = MinNewTokens(limit=2)
    assert [forbidden(part, generated=[0] * n) for n in range(4)] == [[END], [END], [], []]
    assert forbidden(part, prompt=[0] * 9) == [END]


def test_no_end_before_a_length_that_counts_the_prompt() -> None:
    part = MinLength(limit=3)
    assert [forbidden(part, prompt=[0] * n) for n in (1, 2, 3, 4)] == [[END], [END], [], []]
    assert [forbidden(part, generated=[0] * n) for n in range(4)] == [[END], [END], [], []]


@pytest.mark.parametrize("make", [MinNewTokens, MinLength])
def test_other_tokens_may_end_a_row_too(make) -> None:
    assert forbidden(make(limit=2, token_ids=[3, 3])) == [END, 3]
    assert process(make(limit=2, token_ids=[3]), ROW) == [1.0, 3.0, 2.0, -INF]


@pytest.mark.parametrize("make", [MinNewTokens, MinLength])
def test_nothing_to_forbid(make) -> None:
    assert forbidden(make(limit=0, token_ids=[3])) == []
    assert process(make(limit=5), ROW) == ROW


def test_an_end_token_without_a_logit_is_no_reason_to_fail() -> None:
    assert process(MinNewTokens(limit=5), ROW, eos=[1, 9]) == [1.0, -INF, 2.0, 2.0]


def test_rows_of_a_batch_are_counted_by_themselves() -> None:
    """A row ends where it ends alone, whatever its padding."""
    prompts = [[0], [0, 0, 0, 0, 0, 0], [0, 0, 0]]
    assert answers([MinNewTokens(limit=2)], prompts) == [[2, 2, END]] * 3
    assert answers([MinLength(limit=5)], prompts) == [[2] * 4 + [END], [END], [2, 2, END]]


@pytest.mark.parametrize("part", [MinNewTokens(limit=2), MinLength(limit=9)])
def test_a_row_that_can_only_end_ends_the_run_by_the_name_of_the_part(part) -> None:
    with pytest.raises(EmptyRowError, match=rf"processors.0 \({part.type}\)"):
        answers([part], [[0]], row=[-INF, 3.0, -INF, -INF])


def test_a_row_that_can_only_end_may_be_allowed_to() -> None:
    part = MinNewTokens(limit=2, token_ids=[3], if_none_left="allow")
    assert process(part, [-INF, 3.0, -INF, 2.0], eos=[END]) == [-INF, 3.0, -INF, 2.0]
    assert process(part, [-INF, 3.0, 0.0, 2.0], eos=[END]) == [-INF, -INF, 0.0, -INF]
    assert answers([part], [[0]], row=[-INF, 3.0, -INF, -INF]) == [[END]]


def test_stop_ids_that_are_listed_do_not_end_a_row_too_early() -> None:
    criteria = [StopTokenIds(token_ids=[2])]
    assert answers([], [[0]], criteria, row=[0.0, 0.0, 5.0, 1.0]) == [[2]]
    part = MinNewTokens(limit=2, token_ids=[2])
    assert answers([part], [[0]], criteria, row=[0.0, 0.0, 5.0, 1.0]) == [[3, 3, 2]]


# Forced tokens.


def test_an_answer_begins_with_the_forced_token_even_if_it_is_forbidden() -> None:
    part = ForcedBos(token_id=3)
    assert process(part, [1.0, 3.0, 2.0, -INF], prompt=[0, 0, 0]) == [-INF, -INF, -INF, 0.0]
    assert process(part, ROW, generated=[0]) == ROW
    assert answers([part], [[0], [0, 0]]) == [[3, END], [3, END]]


def test_the_second_token_of_a_text_may_be_what_is_forced() -> None:
    part = ForcedBos(token_id=3, place="second_of_text")
    assert process(part, ROW, prompt=[0]) == [-INF, -INF, -INF, 0.0]
    assert process(part, ROW, prompt=[0, 0]) == ROW
    assert answers([part], [[0], [0, 0]]) == [[3, END], [END]]


def test_the_last_place_is_an_end_even_if_that_is_forbidden() -> None:
    """A row of another length has its last place elsewhere."""
    parts = [BadWords(token_ids=[[END]]), ForcedEos()]
    criteria = [Eos(), MaxNewTokens(limit=3)]
    assert answers(parts, [[0], [0, 0, 0]], criteria) == [[2, 2, END]] * 2
    criteria = [Eos(), MaxLength(limit=5)]
    assert answers(parts, [[0], [0, 0, 0]], criteria) == [[2, 2, 2, END], [2, END]]


def test_the_last_place_is_known_where_the_context_ends() -> None:
    model = ScriptedModel([[3.0, 0.0]], eos_token_ids=[1], context_length=4)
    pipeline = Pipeline(model, processors=[ForcedEos()])
    result = pipeline.generate([0])
    assert list(result.token_ids) == [0, 0, 1] and result.finish_reason == "stop"


def test_several_ends_are_forced_alike() -> None:
    part = ForcedEos(token_ids=[0, 3])
    assert process(part, ROW, prompt=[0], limit=2, eos=[END]) == [0.0, -INF, -INF, 0.0]
    assert process(part, ROW, prompt=[0], limit=3, eos=[END]) == ROW


def test_there_must_be_an_end_to_force() -> None:
    with pytest.raises(UnsupportedError, match="this model names no end token; give token_ids"):
        process(ForcedEos(), ROW)


# Decay.


def test_the_end_is_raised_by_powers_of_the_factor() -> None:
    part = LengthDecay(start=2, factor=2.0)
    ends = [process(part, ROW, eos=[END], generated=[0] * n)[END] for n in range(6)]
    assert ends == [3.0, 3.0, 3.0, 6.0, 12.0, 24.0]


@pytest.mark.parametrize(
    ("logit", "raised"), [(-3.0, 6.0), (-2.0, 4.0), (0.0, 0.0), (-INF, -INF), (1e4, 4e4)]
)
def test_a_negative_end_is_raised_too_and_a_forbidden_one_stays_so(logit, raised) -> None:
    """``l + |l| * (2^2 - 1)``."""
    part = LengthDecay(start=0, factor=2.0, token_ids=[0])
    assert process(part, [logit, 1.0], generated=[1, 1]) == [raised, 1.0]


def test_a_factor_below_one_makes_the_end_less_likely() -> None:
    part = LengthDecay(start=0, factor=0.5)
    assert process(part, ROW, eos=[END], generated=[0, 0])[END] == 0.75


@pytest.mark.parametrize("num_tokens", [100, 2000])
def test_the_end_never_becomes_infinite(num_tokens: int) -> None:
    out = process(
        LengthDecay(start=0, factor=2.0, token_ids=[0, 2]),
        [1e4, 0.0, -1e-3, 0.0],
        generated=[1] * num_tokens,
    )
    assert out == [pytest.approx(1e16), 0.0, pytest.approx(1e9), 0.0]
    colder = process(Temperature(temperature=1e-20), out)
    assert all(map(math.isfinite, colder))


def test_the_decay_ends_an_answer() -> None:
    """The end has 1 and is raised by half of that a step, until it is above the 3 of token 0."""
    part = LengthDecay(start=1, factor=1.5)
    assert answers([part], [[0], [0, 0]], row=[3.0, 1.0]) == [[0, 0, 0, 0, END]] * 2


@pytest.mark.parametrize(
    ("part", "eos"),
    [(LengthDecay(start=0, factor=1.0), [END]), (LengthDecay(start=0, factor=2), [])],
)
def test_no_decay(part, eos) -> None:
    assert process(part, ROW, eos=eos, generated=[0] * 9) == ROW


# Options.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinNewTokens(limit=-1), "limit: .*found -1"),
        (lambda: MinNewTokens(limit=1.5), "limit: .*found 1.5"),
        (lambda: MinNewTokens(limit=True), "a number is expected, found True"),
        (lambda: MinNewTokens(), "limit: this option is required"),
        (lambda: MinNewTokens(limit=1, if_none_left="stop"), "if_none_left: .*found 'stop'"),
        (lambda: MinLength(limit=-1), "limit: .*found -1"),
        (lambda: ForcedBos(), "token_id: this option is required"),
        (lambda: ForcedBos(token_id=1, place="third"), "place: .*found 'third'"),
        (lambda: ForcedEos(token_ids=[]), "token_ids: at least 1 is needed"),
        (lambda: LengthDecay(start=-1, factor=2), "start: .*found -1"),
        (lambda: LengthDecay(start=0, factor=0), "factor: .*found 0"),
        (lambda: LengthDecay(start=0, factor=INF), "factor: .*found inf"),
        (lambda: LengthDecay(start=0, factor=2, token_ids=[]), "token_ids: at least 1"),
    ],
)
def test_wrong_options_are_named(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    "part",
    [
        MinNewTokens(limit=1, token_ids=[4]),
        MinLength(limit=1, token_ids=[4]),
        ForcedBos(token_id=4),
        ForcedEos(token_ids=[0, 4]),
        LengthDecay(start=0, factor=2, token_ids=[4]),
    ],
    ids=lambda part: part.type,
)
def test_an_id_that_the_model_does_not_have_is_refused(part) -> None:
    with pytest.raises(InputError, match=f"{part.type}: 4 is no token id of this model"):
        process(part, ROW, eos=[END])


# Laws.


@pytest.mark.parametrize(
    "part",
    [
        MinNewTokens(limit=2, token_ids=[3]),
        MinNewTokens(limit=2, if_none_left="allow"),
        MinLength(limit=4, token_ids=[5]),
        ForcedBos(token_id=3),
        ForcedBos(token_id=3, place="second_of_text"),
        ForcedEos(),
        ForcedEos(token_ids=[3, 4]),
        LengthDecay(start=1, factor=1.5),
        LengthDecay(start=0, factor=0.5, token_ids=[3]),
    ],
    ids=lambda part: part.type,
)
def test_laws(part) -> None:
    check_logits_processor(part, max_examples=10)


def test_laws_in_a_vocabulary_of_one() -> None:
    part = MinNewTokens(limit=2, token_ids=[0])
    check_logits_processor(part, vocab_size=1, max_examples=10)


# Against transformers' own classes.

fewer = settings(max_examples=settings.default.max_examples // 3)

VOCAB = 6
_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_rows = st.lists(_values, min_size=VOCAB, max_size=VOCAB).filter(lambda row: max(row) > -INF)
_logits = st.lists(_rows, min_size=1, max_size=3)
_ends = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3)
_count = st.integers(0, 6)


def both(part, theirs, logits, prompt_length, num_generated, **facts):
    """All rows are equally long: transformers counts padding."""
    number = len(logits)
    prompts, generated = [[0] * prompt_length] * number, [[1] * num_generated] * number
    texts = torch.tensor([p + g for p, g in zip(prompts, generated, strict=True)]).long()
    given_ = torch.tensor(logits)
    ours = apply([part], given_, prompts=prompts, generated=generated, **facts)
    return ours, theirs(texts, given_)


@fewer
@given(_logits, _ends, _count, _count, _count)
def test_min_length_as_transformers(logits, ends, limit, prompt, generated) -> None:
    theirs = generation.MinLengthLogitsProcessor(limit, ends)
    assert torch.equal(*both(MinLength(limit=limit), theirs, logits, prompt, generated, eos=ends))


@fewer
@given(_logits, _ends, _count, _count, _count)
def test_min_new_tokens_as_transformers(logits, ends, limit, prompt, generated) -> None:
    theirs = generation.MinNewTokensLengthLogitsProcessor(prompt, limit, ends)
    assert torch.equal(
        *both(MinNewTokens(limit=limit), theirs, logits, prompt, generated, eos=ends)
    )


@fewer
@given(_logits, st.integers(0, VOCAB - 1), _count, _count)
def test_forced_bos_as_transformers(logits, token_id, prompt, generated) -> None:
    theirs = generation.ForcedBOSTokenLogitsProcessor(token_id)
    part = ForcedBos(token_id=token_id, place="second_of_text")
    assert torch.equal(*both(part, theirs, logits, prompt, generated))


@fewer
@given(_logits, _ends, st.integers(1, 8), _count, _count)
def test_forced_eos_as_transformers(logits, ends, limit, prompt, generated) -> None:
    theirs = generation.ForcedEOSTokenLogitsProcessor(limit, ends)
    part = ForcedEos(token_ids=ends)
    assert torch.equal(*both(part, theirs, logits, prompt, generated, limit=limit))


@fewer
@given(_logits, _ends, _count, st.floats(0.25, 3), _count, _count)
def test_length_decay_as_transformers(logits, ends, start, factor, prompt, generated) -> None:
    theirs = generation.ExponentialDecayLengthPenalty((start, factor), ends, prompt)
    part = LengthDecay(start=start, factor=factor)
    ours, expected = both(part, theirs, logits, prompt, generated, eos=ends)
    torch.testing.assert_close(ours, expected, rtol=3e-6, atol=1e-5)
