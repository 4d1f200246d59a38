"""Cache managers and models that do not keep their contract are refused, or named."""

import pytest

from genkit import Pipeline, caches, stopping
from genkit.errors import ModelOutputError, PartError, UnsupportedError
from genkit.testing import TinyModel


class Odd(caches.Dynamic):
    """A manager of which one thing is wrong."""

    def __init__(self, **wrong):
        super().__init__()
        for name, value in wrong.items():
            object.__setattr__(self, name, value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"grade": "loosy"}, "grade 'loosy'; known: exact, tolerance, lossy"),
        ({"requires": frozenset({"layer"})}, "`requires` has 'layer'.*did you mean 'layers'"),
        ({"requires": "layers"}, "`requires` is a set of capabilities, found str"),
        ({"supports": lambda model: None}, r"`supports\(model\)` is a set.*found NoneType"),
        ({"supports": lambda model: {"magic"}}, "has 'magic', which is no capability"),
    ],
    ids=["grade", "requires", "string", "none", "unknown"],
)
def test_a_manager_that_claims_what_nobody_knows_is_refused(wrong, message):
    with pytest.raises(UnsupportedError, match=f"the cache 'dynamic'.*{message}"):
        Pipeline(TinyModel(), cache=Odd(**wrong))


def fails(*arguments):
    raise RuntimeError("on purpose")


class Full:
    """A cache that leaves nothing to feed."""

    length = 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"acquire": lambda model, state: None}, "returned NoneType from `acquire`.*no cache"),
        ({"acquire": lambda model, state: Full()}, "a cache with 3 columns for a text of 3"),
        ({"acquire": fails}, "raised RuntimeError in `acquire`: on purpose"),
        ({"release": fails}, "raised RuntimeError in `release`: on purpose"),
    ],
    ids=["none", "full", "acquire", "release"],
)
def test_a_manager_that_fails_is_named(wrong, message):
    pipeline = Pipeline(TinyModel(), cache=Odd(**wrong))
    with pytest.raises(PartError, match=f"cache .dynamic. .*{message}"):
        pipeline.generate([1, 2, 3], max_new_tokens=2)


def test_what_ended_a_run_is_not_hidden_by_a_manager_that_fails_too(caplog):
    pipeline = Pipeline(TinyModel(), cache=Odd(release=fails), processors=[fails])
    with pytest.raises(PartError, match="processors.0"):
        pipeline.generate([1, 2, 3], max_new_tokens=2)
    assert "in `release`: on purpose" in caplog.text


def test_a_model_that_gives_no_tensor_is_named():
    class Silent(TinyModel):
        def __call__(self, input_ids, cache):
            return None

    with pytest.raises(ModelOutputError, match="NoneType, not a tensor of logits"):
        Pipeline(Silent()).generate([1, 2, 3], max_new_tokens=2)


def test_a_step_belongs_to_who_is_given_it():
    pipeline = Pipeline(TinyModel(0), stop_criteria=[stopping.MaxNewTokens(limit=4)])
    wanted = [row.token_ids for row in pipeline.generate([[5, 6], [7, 8]])]
    steps = []
    for step in pipeline.decode([[5, 6], [7, 8]]):
        steps.append(step.next_ids.tolist())
        step.rows.fill_(9)
    assert [list(ids) for ids in zip(*steps, strict=True)] == wanted
