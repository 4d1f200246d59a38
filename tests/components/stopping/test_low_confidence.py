"""A model that no longer knows how to go on."""

import math

import pytest
import torch

from genkit.components.processors import Temperature, TopK
from genkit.components.stopping import LowConfidence, MaxNewTokens
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import OptionError, PartError
from genkit.pipeline import Pipeline
from genkit.testing import LawBroken, ScriptedModel, check_stop_criterion


def model(*rows: list[float]) -> ScriptedModel:
    """Four tokens; the first has these probabilities, step by step, and the others share."""
    script = [[[p, *[(1 - p) / 3] * 3] for p in row] for row in rows]
    return ScriptedModel(torch.tensor(script).log())


def run(probs: list[float], *criteria, **parts):
    pipeline = Pipeline(
        model(probs), stop_criteria=[*criteria, MaxNewTokens(limit=len(probs))], **parts
    )
    return pipeline.generate([0])


@pytest.mark.parametrize(
    ("probs", "patience", "num_tokens"),
    [
        ([0.9, 0.5, 0.4, 0.9], 1, 3),
        ([0.9, 0.4, 0.9, 0.4, 0.4, 0.9], 2, 5),
        ([0.4, 0.4, 0.4], 3, 3),
        ([0.9, 0.5, 0.9], 1, None),
        ([0.4, 0.4, 0.9, 0.4, 0.4], 3, None),
    ],
)
def test_when_a_row_ends(probs, patience: int, num_tokens: int | None) -> None:
    """A probability of just the threshold is enough to go on."""
    result = run(probs, LowConfidence(threshold=0.5 - 1e-6, patience=patience))
    if num_tokens is None:
        assert result.finish_reason == "length"
        return
    assert (result.finish_reason, result.stop.criterion) == ("stop", "low_confidence")
    assert result.num_generated_tokens == num_tokens
    assert result.stop.matched == pytest.approx(probs[num_tokens - 1])
    assert result.stop.position == num_tokens - 1


def test_it_is_the_models_own_probability_that_counts() -> None:
    """What processors make of the logits, and which token is chosen, does not matter."""
    sharp = [Temperature(temperature=0.01), TopK(k=1)]
    result = run([0.9, 0.3, 0.9], LowConfidence(), processors=sharp)
    assert result.num_generated_tokens == 2


def test_each_row_by_itself_and_when_others_leave() -> None:
    probs = [[0.9, 0.2, 0.9, 0.9, 0.9], [0.2, 0.9, 0.2, 0.2, 0.9], [0.9] * 5]
    pipeline = Pipeline(
        model(*probs), stop_criteria=[LowConfidence(patience=2), MaxNewTokens(limit=5)]
    )
    results = pipeline.generate([[0], [0], [0]])
    assert [result.num_generated_tokens for result in results] == [5, 4, 5]
    pipeline = Pipeline(model(*probs), stop_criteria=[LowConfidence(), MaxNewTokens(limit=5)])
    results = pipeline.generate([[0], [0], [0]])
    assert [result.num_generated_tokens for result in results] == [2, 1, 5]


def test_a_decoder_that_gives_no_logits_is_named() -> None:
    bound = LowConfidence().bind(Run(((0,),), (0,), (0,), (9,), (0,), vocab_size=3))
    state = GenerationState([[0]], [9], RowRandom([0], [0]))
    state.append(torch.tensor([1]))
    with pytest.raises(PartError, match=r"low_confidence needs the model's logits.*decoder"):
        bound(state)


def test_the_state_gives_the_last_logits_until_rows_move() -> None:
    state = GenerationState([[0], [0]], [9, 9], RowRandom([0, 1], [0, 0]))
    assert state.last_logits is None
    logits = torch.randn(2, 3)
    state.append(torch.tensor([1, 2]), logits)
    assert state.last_logits is logits
    state.reorder([1])
    assert state.last_logits is None
    state.append(torch.tensor([1]))
    assert state.last_logits is None


@pytest.mark.parametrize("part", [LowConfidence(), LowConfidence(threshold=0.2, patience=3)])
def test_the_laws(part: LowConfidence) -> None:
    check_stop_criterion(part, max_examples=30)


def test_a_criterion_may_not_write_into_the_logits() -> None:
    def spoils(state):
        state.last_logits[:, 0] = math.inf
        return state.finished

    with pytest.raises(LawBroken, match=r"changed `state\.last_logits`"):
        check_stop_criterion(spoils, max_examples=5)


@pytest.mark.parametrize("options", [{"threshold": 0}, {"threshold": 1.1}, {"patience": 0}])
def test_options_out_of_range(options) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        LowConfidence(**options)
