"""A part that breaks its contract is named, with the step."""

import contextlib

import pytest
import torch

from genkit import processors
from genkit.components.base import LogitsProcessor, Sampler
from genkit.components.stopping import MaxNewTokens
from genkit.core.guard import GuardedModel
from genkit.errors import ModelOutputError, PartError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel


def run(**parts):
    model = ScriptedModel.of_ids(range(20), 32)
    parts.setdefault("stop_criteria", [MaxNewTokens(limit=9)])
    return Pipeline(model, **parts).generate([1, 2])


def at_step_seven(what):
    return lambda state, logits: what(logits) if int(state.num_generated[0]) == 7 else logits


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda logits: 1 / 0, r"step 7: processors.0 .* raised ZeroDivisionError"),
        (lambda logits: logits[:, :5], r"step 7: processors.0 .* returned float32 \[1, 5\]"),
        (lambda logits: logits.double(), "step 7: processors.0 .* returned float64"),
        (lambda logits: logits.mul_(2), "step 7: processors.0 .* wrote into the logits"),
        (lambda logits: None, "step 7: processors.0 .* returned NoneType"),
        (lambda logits: logits.to_sparse(), r"step 7: processors.0 .* on cpu \(torch.sparse_coo\)"),
        (lambda logits: logits * float("-inf"), "processors.0"),
    ],
)
def test_a_processor(what, message: str) -> None:
    with pytest.raises(PartError, match=message) as caught:
        run(processors=[at_step_seven(what)])
    (result,) = caught.value.partial_results
    assert result.token_ids == list(range(7)) and result.finish_reason == "error"


def write_data(state, logits):
    logits.data[:, 0] = 9
    return logits * 1


def write_numpy(state, logits):
    logits.numpy()[:, 0] = 9
    return logits


def write_and_draw(state, logits):
    logits.data[:, 0] = 9
    return logits.argmax(-1)


@pytest.mark.parametrize(
    "parts",
    [{"processors": [write_data]}, {"processors": [write_numpy]}, {"sampler": write_and_draw}],
    ids=["data", "numpy", "sampler"],
)
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.inference_mode])
def test_writing_past_the_version_counter_is_noticed(parts: dict, mode) -> None:
    with mode(), pytest.raises(PartError, match="step 0: .* wrote into the logits"):
        run(**parts)


def test_nan_is_not_taken_for_something_written() -> None:
    model = ScriptedModel.of_ids([1], 32)
    model.script[..., 5] = torch.nan
    repair = processors.RemoveInvalid()
    pipeline = Pipeline(model, processors=[repair], stop_criteria=[MaxNewTokens(limit=1)])
    assert pipeline.generate([1]).num_generated_tokens == 1


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (lambda state, logits: logits.argmax(-1).int(), r"sampler .* returned int32 \[1\]"),
        (lambda state, logits: logits.argmax(), r"sampler .* returned int64 \[\]"),
        (lambda state, logits: 3, "sampler .* returned int,"),
        (
            lambda state, logits: logits.argmax(-1).to("meta"),
            r"sampler .* on meta, not int64 \[1\]",
        ),
        (lambda state, logits: 1 / 0, "step 0: sampler .* raised ZeroDivisionError"),
    ],
)
def test_a_sampler(sampler, message: str) -> None:
    with pytest.raises(PartError, match=message):
        run(sampler=sampler)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (lambda state: True, "stop_criteria.0 .* returned bool,"),
        (lambda state: state.last_ids, r"stop_criteria.0 .* returned int64 \[1\]"),
        (lambda state: (state.last_ids > 0).to("meta"), "stop_criteria.0 .* on meta, not bool"),
        (lambda state: 1 / 0, "step 0: stop_criteria.0 .* raised ZeroDivisionError"),
    ],
)
def test_a_stop_criterion(criterion, message: str) -> None:
    with pytest.raises(PartError, match=message):
        run(stop_criteria=[criterion])


def test_a_model_of_another_width() -> None:
    model = ScriptedModel.of_ids([1], 32)
    model.vocab_size = 40
    with pytest.raises(ModelOutputError, match=r"shape \[1, 32\], not \[1, 40\]"):
        Pipeline(model).generate([1])


def test_a_model_that_gives_whole_numbers() -> None:
    model = ScriptedModel.of_ids([1], 32)
    model.script = model.script.long()
    with pytest.raises(ModelOutputError, match="the model gave int64 .* no logits"):
        Pipeline(model).generate([1])


class Stateful(LogitsProcessor):
    """Makes a callable without `reorder`."""

    type: str = "stateful"

    def bind(self, run):
        return lambda state, logits: logits


class Idle(Sampler):
    """Does nothing in any run."""

    type: str = "idle"

    def bind(self, run):
        return None


def test_a_part_with_state_and_without_reorder_is_refused_for_batches() -> None:
    model = ScriptedModel.of_ids([1], 32)
    pipeline = Pipeline(model, processors=[Stateful()], stop_criteria=[MaxNewTokens(limit=1)])
    pipeline.generate([1])
    with pytest.raises(UnsupportedError, match=r"processors.0 \(stateful\).*reorder"):
        pipeline.generate([[1], [2]])
    assert model.num_calls == 1


def test_half_precision_logits_are_raised_to_float32() -> None:
    model = ScriptedModel.of_ids([1], 32)
    model.script = model.script.half()
    seen = []
    Pipeline(
        model,
        processors=[lambda state, logits: seen.append(logits.dtype) or logits],
        stop_criteria=[MaxNewTokens(limit=1)],
    ).generate([1])
    assert seen == [torch.float32]


def test_double_precision_logits_stay() -> None:
    model = ScriptedModel.of_ids([1], 32)
    model.script = model.script.double()
    seen = []
    Pipeline(
        model,
        processors=[lambda state, logits: seen.append(logits.dtype) or logits],
        stop_criteria=[MaxNewTokens(limit=1)],
    ).generate([1])
    assert seen == [torch.float64]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"processors": [Stateful]}, r"processors.0 is a class; .* Stateful\(...\)"),
        (
            {"processors": ["top_k"]},
            "processors.0 is a logits processor, found 'top_k'; names stand in recipes",
        ),
        ({"sampler": 0.7}, "sampler is a sampler, found 0.7; an object that can be called"),
        ({"stop_criteria": [64]}, "stop_criteria.0 is a stop criterion, found 64"),
        ({"sampler": Idle()}, "sampler .* does nothing in this run"),
        ({"sampler": Stateful()}, "sampler is a sampler; 'stateful' is a logits processor"),
        ({"processors": Stateful()}, "processors is a list of parts"),
        ({"stop_criteria": "eos"}, "stop_criteria is a list of parts"),
        ({"cache": "dynamic"}, "cache is a cache manager, found 'dynamic'"),
        (
            {"cache": len},
            r"cache is a cache manager, found <built-in function len>; an object with "
            r"`acquire\(model, state\)` and `release\(cache, state\)` is needed",
        ),
        ({"context": "chat"}, "context is a context, found 'chat'"),
        ({"decoder": "beam"}, "decoder is a decoder, found 'beam'"),
    ],
)
def test_what_is_no_part_is_refused_before_the_first_token(parts: dict, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        run(**parts)


class Broken(LogitsProcessor):
    """Cannot be bound."""

    type: str = "broken"

    def bind(self, run):
        raise KeyError("x")


class Forgets:
    """A processor that cannot let a row go."""

    def __call__(self, state, logits):
        return logits

    def reorder(self, indices):
        raise KeyError("x")


def test_where_rows_leave_the_step_is_named() -> None:
    model = TinyModel()
    criteria = [lambda state: state.num_generated > 3 + state.rows, MaxNewTokens(limit=9)]
    pipeline = Pipeline(model, processors=[Forgets()], stop_criteria=criteria)
    with pytest.raises(PartError, match=r"step 3: processors.0 \(Forgets\) .* in `reorder`"):
        pipeline.generate([[1, 2], [3, 4]])


class BadReport:
    name = "bad"

    def __call__(self, state):
        return state.last_ids >= 0

    def report(self, state, i):
        raise KeyError("x")


class BadBound(BadReport):
    def bound(self, num_prompt_tokens: int) -> int:
        raise KeyError("x")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"processors": [Broken()]}, r"processors.0 \(broken\) raised KeyError: 'x' when it was"),
        ({"stop_criteria": [BadReport()]}, r"step 0: stop_criteria.0 \(bad\) raised KeyError in"),
        ({"stop_criteria": [BadBound()]}, r"stop_criteria \(bad\) raised KeyError: 'x' in `bound`"),
    ],
)
def test_other_methods_that_raise_are_named_too(parts: dict, message: str) -> None:
    with pytest.raises(PartError, match=message):
        run(**parts)


class Ahead(ScriptedModel):
    """Gives logits of several positions, of a width that is not always right."""

    width = 32

    def last(self, input_ids, cache, n):
        return torch.zeros(len(input_ids), n, self.width)


def test_the_logits_of_several_positions_are_watched_too() -> None:
    model = Ahead.of_ids(range(20), 32, eos_token_ids=[31])
    ids = torch.ones(2, 5, dtype=torch.int64)
    logits = GuardedModel(model, "model", 30).last(ids, None, 3)
    assert logits.shape == (2, 3, 32)
    assert logits.isfinite().sum(-1).unique().tolist() == [31]
    assert torch.equal(logits[..., [29, 30, 31]][0, 0], torch.tensor([0, -torch.inf, 0]))
    model.width = 31
    with pytest.raises(ModelOutputError, match=r"\[2, 3, 31\], not \[2, 3, 32\]"):
        GuardedModel(model, "model").last(ids, None, 3)
    model.last = None
    assert GuardedModel(model, "model").last is None


class Ends:
    """A stop criterion that ends the run at its third token."""

    def __init__(self, **functions) -> None:
        vars(self).update(functions)

    def __call__(self, state):
        return state.num_generated == 3


def test_a_report_with_something_unknown() -> None:
    criterion = Ends(report=lambda state, i: {"matched": 1, "foo": 2})
    with pytest.raises(PartError, match=r"reported foo; known: matched, position, text_end"):
        run(stop_criteria=[criterion])


@pytest.mark.parametrize("gives", [lambda text: 1 / 0, lambda text: "x", lambda text: -1])
def test_letters_held_back(gives) -> None:
    model = ScriptedModel.of_ids(range(20), 260, tokenizer=ByteTokenizer())
    pipeline = Pipeline(model, stop_criteria=[Ends(held_back=gives)])
    with pytest.raises(PartError, match=r"stop_criteria.0 \(Ends\) raised .* in `held_back`"):
        list(pipeline.stream([1, 2]))
