"""The steps of a decoder that is not ours are looked at before anybody believes them."""

from dataclasses import replace

import pytest
import torch

from genkit import stopping
from genkit.core.guarded_decoder import GuardedDecoder
from genkit.core.loop import autoregressive
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.errors import PartError
from genkit.pipeline import Pipeline
from genkit.testing import TinyModel


def answer(decoder, model=None):
    limit = stopping.MaxNewTokens(limit=4)
    model = TinyModel() if model is None else model
    return Pipeline(model, decoder=decoder, stop_criteria=[limit]).generate(
        [[1, 2], [3, 4]], seed=0
    )


def changed(at: int, **fields):
    """The plain loop, with a step that differs."""

    def decoder(*parts):
        for index, step in enumerate(autoregressive(*parts)):
            yield replace(step, **fields) if index == at else step

    return decoder


def test_a_loop_around_the_plain_one_gives_what_it_gives():
    assert answer(changed(9)) == answer(None)


def test_the_plain_loop_is_not_watched():
    state = GenerationState([[1, 2]], [4], RowRandom([0], [0]))
    plain = autoregressive(TinyModel(), None, [], None, [], state)
    guarded = GuardedDecoder(lambda *parts: plain, "decoder")
    assert guarded(TinyModel(), None, [], None, [], state) is plain


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"next_ids": torch.tensor([1, 999])}, "gave the id 999; ids are 0 to"),
        ({"next_ids": torch.tensor([-1, 1])}, "gave the id -1; ids are 0 to"),
        ({"next_ids": torch.tensor([1])}, r"gave a step with the next_ids .* not int64 \[2\]"),
        ({"next_ids": [1, 2]}, r"gave a step with the next_ids \[1, 2\], not int64 \[2\]"),
        ({"rows": torch.tensor([0, 7])}, r"gave tokens to the rows \[0, 7\]; unfinished are: 0, 1"),
        ({"rows": torch.tensor([1, 1])}, r"gave tokens to the rows \[1, 1\]"),
        ({"logits": None}, r"gave a step with the logits None, not floats \[2, "),
        (
            {"raw_logits": torch.zeros(2, 3)},
            r"gave a step with the raw_logits .* \[2, 3\], not floats",
        ),
        (
            {"stops": ("end", None)},
            "gave a step with the stops .'end', None., not a tuple",
        ),
        ({"stops": None}, "gave a step with the stops None, not a tuple of Stop"),
        ({"rows": torch.tensor([0.0, 1.0])}, r"gave a step with the rows .* not int64 \[2\]"),
    ],
)
def test_a_step_that_does_not_fit_is_named(fields, message):
    with pytest.raises(PartError, match=rf"step 2: decoder \(decoder\) {message}") as caught:
        answer(changed(2, **fields))
    assert [len(result.token_ids) for result in caught.value.partial_results] == [2, 2]


def ends_early(*parts):
    for index, step in enumerate(autoregressive(*parts)):
        if index == 2:
            return
        yield step


def goes_on(*parts):
    for step in autoregressive(*parts):
        yield step
    yield step


def gives_ids(*parts):
    yield 5


def has_begun(*parts):
    steps = autoregressive(*parts)
    next(steps)
    return steps


def of_another_state(*parts):
    state = GenerationState([[1], [2]], [3, 3], RowRandom([0, 0], [0, 0]), rows=[5, 6])
    return autoregressive(*parts[:-1], state)


def appends_nonsense(*parts):
    for step in autoregressive(*parts):
        yield step
        parts[-1].append(torch.zeros(7, dtype=torch.int64))


def does_not_end(*parts):
    try:
        yield from autoregressive(*parts)
    except GeneratorExit:
        yield


def gives_none(*parts):
    yield None


def gives_a_list(*parts):
    return list(autoregressive(*parts))


def raises_at_once(*parts):
    raise KeyError("x")


def raises_later(*parts):
    for index, step in enumerate(autoregressive(*parts)):
        yield step
        [][index]


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (ends_early, "step 2: .* gave no more steps, but nothing has ended the rows 0, 1"),
        (goes_on, r"step 4: .* gave tokens to the rows \[0, 1\]; unfinished are: none"),
        (gives_ids, "step 0: .* gave 5, not a Step"),
        (gives_none, "step 0: .* gave None, not a Step"),
        (gives_a_list, "step 0: .* gave list, not a generator of steps"),
        (has_begun, "step 0: .* gave a generator of which steps are gone"),
        (of_another_state, r"step 0: .* gave tokens to the rows \[5, 6\]; unfinished are: 0, 1"),
        (appends_nonsense, "step 1: .* raised RuntimeError: "),
        (raises_at_once, "step 0: .* raised KeyError: 'x'"),
        (raises_later, "step 1: .* raised IndexError: list index out of range"),
    ],
)
def test_a_decoder_that_is_none_is_named(decoder, message):
    with pytest.raises(PartError, match=message) as caught:
        answer(decoder)
    assert f"decoder ({decoder.__name__})" in str(caught.value)


def test_a_decoder_that_does_not_let_itself_be_closed_is_named():
    model = TinyModel()
    limit = stopping.MaxNewTokens(limit=4)
    steps = Pipeline(model, decoder=does_not_end, stop_criteria=[limit]).decode([1, 2])
    next(steps)
    with pytest.raises(PartError, match=r"step 0: decoder \(does_not_end\) .*GeneratorExit"):
        steps.close()


def test_what_the_model_raises_is_not_the_decoders():
    class Tired(TinyModel):
        def __call__(self, input_ids, cache):
            raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        answer(changed(9), Tired())
