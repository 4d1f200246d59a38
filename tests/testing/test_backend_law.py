"""The law that a model is one and the same on every backend, and models that round."""

import pytest
import torch

from genkit import Pipeline, caches
from genkit.testing import LAWS, Case, LawBroken, TinyModel, check_backend, check_backends_agree
from genkit.testing.laws.backends import NAME, same_as_on

CASES = [Case(((1, 2, 3), (4,)), (0, 1), 4, choice) for choice in range(3)]


class Rounding(TinyModel):
    """Its logits depend a little on how many columns are fed at a time, as int8 does."""

    rounds = True

    def last(self, input_ids, cache, n):
        step = 0.05 * input_ids.shape[1]
        return super().last(input_ids, cache, n) + step


def test_the_same_weights_agree_in_another_precision() -> None:
    single, double = TinyModel(dtype=torch.float32), TinyModel(dtype=torch.float64)
    (verdict,) = check_backends_agree(single, double, max_examples=20)
    assert verdict.law.name == NAME and verdict.holds
    assert 0 < verdict.finding.worst_logit_error < 1e-3


def test_other_weights_do_not() -> None:
    with pytest.raises(LawBroken, match=f"'{NAME}'.*logits differ"):
        check_backends_agree(TinyModel(0), TinyModel(1), max_examples=5)


def test_models_of_different_widths_are_two_models() -> None:
    with pytest.raises(LawBroken, match="260 wide here and 40 there"):
        check_backends_agree(TinyModel(), TinyModel(vocab_size=40), max_examples=1)


def test_models_whose_texts_end_with_other_tokens() -> None:
    with pytest.raises(LawBroken, match=r"end tokens are \[\] here and \[7\] there.*tokenizer"):
        check_backends_agree(TinyModel(), TinyModel(eos_token_ids=[7]), max_examples=1)


def test_a_lossy_cache_is_used_on_both_sides() -> None:
    pipeline = Pipeline(TinyModel(), cache=caches.Quantized(bits=4, group_size=2))
    assert same_as_on(TinyModel()).judge(pipeline, CASES).holds


def test_what_a_rounding_model_does_is_measured_and_never_holds() -> None:
    verdicts = {v.law.name: v for v in check_backend(Rounding(), max_examples=3)}
    split = verdicts["any prefill split"]
    assert split.holds is None and "measured, as the model rounds" in split.detail
    assert split.finding.worst_logit_error > 0.01
    assert verdicts["at the same time = alone"].holds  # the same shapes, the same calls


@pytest.mark.parametrize(
    "pair", [(Rounding(), TinyModel()), (TinyModel(), Rounding())], ids=["one", "other"]
)
def test_whichever_of_two_backends_rounds_the_law_is_measured(pair) -> None:
    (verdict,) = check_backends_agree(*pair, max_examples=5)
    assert verdict.holds is None and "measured, as the model rounds" in verdict.detail
    verdict = same_as_on(pair[1]).judge(Pipeline(pair[0]), CASES)
    assert verdict.holds is None and verdict.finding.worst_logit_error > 0.01


def test_a_rounding_model_may_still_break_a_law() -> None:
    def odd(state, logits):
        return torch.rand_like(logits)

    pipeline = Pipeline(Rounding(), processors=[odd])
    law = next(law for law in LAWS if law.name == "same seed = same tokens")
    assert law.judge(pipeline, CASES).holds is False
