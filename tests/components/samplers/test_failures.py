"""A row that nothing can be drawn from fails the step, whichever the sampler."""

import math

import pytest
import torch

from genkit.components.samplers import AdaptiveP, Categorical, Greedy, Mirostat
from genkit.errors import EmptyRowError, ModelOutputError, PartError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel

SAMPLERS = [Greedy(), Categorical(), Mirostat(), Mirostat(version=1), AdaptiveP(target=1)]


def model() -> ScriptedModel:
    script = torch.zeros(2, 6, 260)
    script[:, :, ord("k")] = 50
    return ScriptedModel(script, tokenizer=ByteTokenizer())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_model_that_gives_no_numbers(sampler, bad: float) -> None:
    """NAN-01: row 1 of 2 in step 3; the text of both rows so far is kept."""
    broken = model()
    broken.script[1, 3] = bad
    with pytest.raises(ModelOutputError, match="row 1, step 3: the model gave") as info:
        Pipeline(broken, sampler=sampler).generate([[1], [2]], seeds=[1, 2])
    assert [result.text for result in info.value.partial_results] == ["kkk", "kkk"]


@pytest.mark.parametrize(
    ("bad", "error"), [(math.nan, PartError), (math.inf, PartError), (-math.inf, EmptyRowError)]
)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_processor_that_leaves_no_numbers(sampler, bad: float, error: type) -> None:
    def spoil(state, logits):
        spoilt = logits.clone()
        if state.most_generated == 2:
            spoilt[-1] = bad
        return spoilt

    with pytest.raises(error, match=r"row 1, step 2: after processors\.0 \(spoil\)") as info:
        Pipeline(model(), processors=[spoil], sampler=sampler).generate([[1], [2]], seeds=[1, 2])
    assert [result.text for result in info.value.partial_results] == ["kk", "kk"]
