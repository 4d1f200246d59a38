"""The comparison of an exported model with its source, with models that need no file."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genkit.errors import UnsupportedError
from genkit.exporters.checking import compare
from genkit.testing import TinyModel

PLACES = 3 * (1 + 7 + 3 + 26)


class Changed:
    """A model whose logits go through a function of ids fed, columns in the cache, and logits."""

    def __init__(self, change: Any) -> None:
        self.inner = TinyModel()
        self.change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        return self.last(input_ids, cache, 1)[:, 0]

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        past = cache.length
        return self.change(input_ids, past, self.inner.last(input_ids, cache, n))


def changed(change: Any) -> Any:
    return compare(TinyModel(), Changed(change))


def test_equal_models_differ_nowhere() -> None:
    """ONNX-16: these shapes, none of them the one that was traced."""
    found = compare(TinyModel(), TinyModel())
    assert (found.max_logit_error, found.num_agreeing, found.num_places) == (0, PLACES, PLACES)
    assert [(shape.rows, shape.new, shape.past) for shape in found.shapes] == [
        (rows, new, past) for rows, new in ((1, 1), (1, 7), (3, 1), (2, 13)) for past in (0, 1, 9)
    ]
    assert found.largest_logit > 1
    found.refuse_what_differs("fp32")


def test_another_model_is_refused_in_float32_and_measured_otherwise() -> None:
    found = changed(lambda ids, past, logits: -logits if past == 0 else logits)
    assert found.max_logit_error > 1
    assert 0 < found.num_agreeing < PLACES
    with pytest.raises(UnsupportedError, match="does not compute what it should"):
        found.refuse_what_differs("fp32")
    found.refuse_what_differs("int4")


@pytest.mark.parametrize(("part", "refused"), [(0.5e-4, False), (2e-4, True)])
def test_a_float32_graph_may_be_off_by_a_ten_thousandth(part: float, refused: bool) -> None:
    largest = compare(TinyModel(), TinyModel()).largest_logit
    found = changed(lambda ids, past, logits: logits + part * largest)
    assert found.max_logit_error == pytest.approx(part * largest, rel=0.1)
    if not refused:
        return found.refuse_what_differs("fp32")
    with pytest.raises(UnsupportedError, match="off by up to"):
        found.refuse_what_differs("fp32")


def test_a_graph_that_is_wrong_at_one_shape_only_is_refused_with_that_shape() -> None:
    """ONNX-17: what is right for the rows, columns and past that were traced may be a constant."""
    found = changed(lambda ids, past, x: x + 1.0 * (len(ids) == 3 and past == 9))
    with pytest.raises(UnsupportedError, match=r"off by up to 1, .*\(rows 3, past 9, new 1\)"):
        found.refuse_what_differs("fp32")


def test_a_graph_that_finds_no_token_is_nonsense_in_any_precision() -> None:
    found = changed(lambda ids, past, logits: -logits)
    assert found.num_agreeing == 0
    with pytest.raises(UnsupportedError, match=f"in none of {PLACES} places"):
        found.refuse_what_differs("int4")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(UnsupportedError, match=r"not finite \(rows 3, past 0, new 1\)"):
        changed(lambda ids, past, x: x * value if len(ids) == 3 else x)


def test_a_shape_that_cannot_be_run_is_named() -> None:
    def fail(ids: torch.Tensor, past: int, logits: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] == 13:
            raise RuntimeError("Got invalid dimensions\nfor input")
        return logits

    message = r"cannot be run \(rows 2, past 0, new 13\): Got invalid dimensions for input$"
    with pytest.raises(UnsupportedError, match=message):
        changed(fail)


def test_vocabularies_must_have_one_size() -> None:
    with pytest.raises(UnsupportedError, match="gives 300 logits and the model 400"):
        compare(TinyModel(vocab_size=400), TinyModel(vocab_size=300))
