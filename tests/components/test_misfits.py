"""Numbers in options that nobody means are refused where they are given."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from genkit import Pipeline
from genkit.components.base import Component
from genkit.components.misfits import misfits
from genkit.components.processors import (
    BadWords,
    BeginSuppressTokens,
    Dry,
    MinLength,
    MinNewTokens,
    PrefixAllowedTokens,
    PromptNoRepeatNGram,
    SequenceBias,
    Smoothing,
    SuppressTokens,
    TokenBias,
    Xtc,
)
from genkit.components.stopping import LowConfidence, Repeating, StopTokenIds
from genkit.errors import OptionError
from genkit.testing import ScriptedModel, process


@pytest.mark.parametrize(
    ("part", "options", "place"),
    [
        (SuppressTokens, {"token_ids": [True]}, ("token_ids", 0)),
        (BadWords, {"token_ids": [[1], [2, False]]}, ("token_ids", 1, 1)),
        (SequenceBias, {"sequences": [{"token_ids": [True], "bias": 1}]}, None),
        (TokenBias, {"biases": {True: 1.0}}, ("biases", True)),
        (StopTokenIds, {"token_ids": [2**63]}, ("token_ids", 0)),
        (MinNewTokens, {"limit": 2**64}, ("limit",)),
        (MinLength, {"limit": 2**64}, ("limit",)),
        (BeginSuppressTokens, {"token_ids": [1], "begin_index": 2**64}, ("begin_index",)),
        (Xtc, {"probability": 0.5, "min_keep": 2**64}, ("min_keep",)),
        (LowConfidence, {"patience": 2**64}, ("patience",)),
        (PromptNoRepeatNGram, {"n": 2**64}, ("n",)),
        (Repeating, {"max_period": 2, "times": 2**63 - 1}, ("times",)),
        (Smoothing, {"factor": 1e39}, ("factor",)),
    ],
)
def test_they_are_refused_with_their_place(
    part: Callable[..., Component], options: dict[str, Any], place: tuple[Any, ...] | None
) -> None:
    with pytest.raises(OptionError) as caught:
        part(**options)
    assert place is None or [problem.path for problem in caught.value.problems] == [place]


def test_the_widest_that_fit_run() -> None:
    """Nothing that is accepted fails at a step."""
    widest = 2**63 - 1
    for part in (
        MinNewTokens(limit=widest),
        MinLength(limit=widest),
        BeginSuppressTokens(token_ids=[1], begin_index=widest, num_tokens=widest),
        Xtc(probability=1.0, min_keep=widest),
        PromptNoRepeatNGram(n=widest),
    ):
        assert process(part, [1.0, 2.0, 3.0, 0.0], eos=[3], prompt=[0, 1])[0] == 1.0, part
    for criterion in (
        LowConfidence(patience=widest),
        Repeating(max_period=1024, times=2**31 - 1),
    ):
        model = ScriptedModel.of_ids([1], vocab_size=4)
        pipeline = Pipeline(model, stop_criteria=[criterion])
        assert len(pipeline.generate([0], max_new_tokens=3).token_ids) == 3


def test_an_id_has_one_bias() -> None:
    with pytest.raises(OptionError, match="the id 1 is given twice"):
        TokenBias(biases={1: 2.0, "1": -2.0})
    assert TokenBias(biases={"1": 2.0}).biases == {1: 2.0}


def test_half_a_character_is_refused() -> None:
    for options in ({"strings": ["a\ud800"]}, {"strings": "\udfff"}):
        with pytest.raises(OptionError, match="surrogate"):
            BadWords(**options)
    with pytest.raises(OptionError, match="surrogate"):
        Dry(multiplier=1.0, breakers=["\ud800"])


@pytest.mark.parametrize("path", ["..:..", "a.:b", "a:b.", ".a:b", "1:2", "a b:c", "a:"])
def test_a_path_is_made_of_names(path: str) -> None:
    with pytest.raises(OptionError, match="import path"):
        PrefixAllowedTokens(function=path)


def test_a_number_may_be_as_large_as_a_float_holds() -> None:
    assert not list(misfits(float, 2**70))
    assert not list(misfits(dict[int, float], {1: 0.5}))
    assert not list(misfits(bool | int, True))
    assert list(misfits(Callable[[int], int] | None, True)) == []
    assert math.isinf(float(TokenBias(biases={2: "-inf"}).biases[2]))
