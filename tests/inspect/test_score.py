from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from genkit.errors import ContextLengthError, InputError, ModelOutputError, UnsupportedError
from genkit.inspect import score as score_module
from genkit.inspect.score import score
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel


class Watched:
    """A model that notes how many positions it is asked for; may lack what others have."""

    def __init__(self, inner: Any, supports: set[str] | None = None) -> None:
        self.inner = inner
        self.supports = frozenset(inner.supports if supports is None else supports)
        self.asked: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def new_cache(self, state: Any) -> Any:
        cache = self.inner.new_cache(state)
        cache.supports = self.supports
        return cache

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        self.asked.append((input_ids.shape[1], n))
        logits: torch.Tensor = self.inner.last(input_ids, cache, n)
        return logits


def plain(model: TinyModel, ids: list[int]) -> list[float]:
    """The log-probabilities by one forward pass over the whole text."""
    from genkit.core.random import RowRandom
    from genkit.core.state import GenerationState

    state = GenerationState([ids], [len(ids)], RowRandom([0], [0], "cpu"))
    logits = model.last(state.token_ids, model.new_cache(state), len(ids))[0].double()
    logprobs = logits.log_softmax(-1)
    return [float(logprobs[i, ids[i + 1]]) for i in range(len(ids) - 1)]


@pytest.mark.parametrize("length", [2, 3, 5, 8, 9, 16, 17, 41])
@pytest.mark.parametrize("supports", [None, {"crop", "reorder"}])
def test_equals_one_plain_forward_pass(
    monkeypatch: pytest.MonkeyPatch, length: int, supports: set[str] | None
) -> None:
    """LOGP-06: raw log-probabilities, and none for the first token."""
    monkeypatch.setattr(score_module, "_BLOCK", 8)
    ids = [(37 * i * i + 11) % 256 for i in range(length)]
    model = TinyModel(seed=1)
    watched = Watched(model, supports)
    found = score(watched, ids)
    expected = plain(model, ids)
    logprobs = [token.logprob for token in found.tokens]
    assert logprobs[0] is None
    assert logprobs[1:] == pytest.approx(expected, abs=1e-4)
    assert found.logprob == pytest.approx(sum(expected), abs=1e-4)
    assert found.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-4)
    assert found.num_tokens == length
    widest = 8 if supports is None else 1
    assert all(fed == asked <= widest for fed, asked in watched.asked)
    assert sum(fed for fed, _ in watched.asked) == length - 1


def test_never_more_than_128_positions_at_once() -> None:
    watched = Watched(TinyModel(context_length=400))
    score(watched, [65] * 300)
    assert watched.asked == [(128, 128), (128, 128), (43, 43)]


def test_one_token_has_an_empty_sum_and_no_mean() -> None:
    found = score(TinyModel(), "a")
    assert (found.logprob, found.perplexity, found.num_tokens) == (0.0, None, 1)
    assert found.to_dict()["tokens"] == [{"token_id": 97, "text": "a", "logprob": None}]


def test_begins_as_the_tokenizer_does() -> None:
    found = score(TinyModel(tokenizer=ByteTokenizer(add_bos=True)), "ab")
    assert [token.text for token in found.tokens] == ["<bos>", "a", "b"]


def test_a_text_of_probability_zero_is_still_json() -> None:
    logits = torch.full((1, 260), -math.inf)
    logits[0, 97] = 0.0
    found = score(ScriptedModel(logits), [97, 98])
    assert found.logprob == -math.inf
    assert found.perplexity == math.inf
    assert found.to_dict()["perplexity"] is None


def test_ids_need_no_tokenizer_and_text_does() -> None:
    model = ScriptedModel(torch.zeros(1, 10))
    assert score(model, [1, 2, 3]).perplexity == pytest.approx(10)
    with pytest.raises(InputError, match="no tokenizer"):
        score(model, "a")


def test_refusals() -> None:
    model = TinyModel(context_length=8)
    assert score(model, "x" * 8).num_tokens == 8
    with pytest.raises(ContextLengthError, match="9 tokens and the model's context holds 8"):
        score(model, "x" * 9)
    with pytest.raises(InputError, match="empty"):
        score(model, "")
    with pytest.raises(InputError, match="300 is no token id"):
        score(model, [1, 300])


def test_a_model_without_last_is_refused() -> None:
    class LastOnly:
        vocab_size, eos_token_ids, context_length = 10, frozenset[int](), None
        device, supports = torch.device("cpu"), frozenset[str]()

        def __call__(self, input_ids: Any, cache: Any) -> Any:
            raise AssertionError("nothing is computed")

        new_cache = __call__

    with pytest.raises(UnsupportedError, match="'LastOnly'"):
        score(LastOnly(), [1, 2])


def test_nan_is_an_error() -> None:
    with pytest.raises(ModelOutputError, match="NaN"):
        score(ScriptedModel([[0.0, math.nan]]), [0, 1])
