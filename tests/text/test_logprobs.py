"""Log-probabilities: raw ones are the model's, processed ones the sampler's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genkit import Pipeline, processors, samplers, stopping
from genkit.errors import InputError
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel
from genkit.text.logprobs import _top

LOGITS = [1.0, 0.0, -1.0, -2.0]


def first(logits: list[float], num_top: int, *chain: Any, **parts: Any) -> Any:
    model = ScriptedModel([logits])
    criteria = [stopping.MaxNewTokens(limit=1)]
    pipeline = Pipeline(model, processors=chain, stop_criteria=criteria, **parts)
    [entry] = pipeline.generate([0], logprobs=num_top).logprobs
    return entry


def numbers(tokens: Any) -> list[tuple[int, float]]:
    return [(token.token_id, token.logprob) for token in tokens]


def test_raw_ones_are_the_model_s_whatever_the_options() -> None:
    """LOGP-01."""
    chain = processors.Temperature(temperature=0.5), processors.TopP(p=0.9)
    entry = first(LOGITS, 3, *chain)
    total = math.log(sum(map(math.exp, LOGITS)))
    assert entry.token_id == 0 and entry.raw == pytest.approx(1 - total)
    assert entry.raw == pytest.approx(-0.440, abs=5e-4)
    assert numbers(entry.top_raw) == [
        (i, pytest.approx(value)) for i, value in enumerate([1 - total, -total, -1 - total])
    ]
    assert numbers(first(LOGITS, 3).top_raw) == numbers(entry.top_raw)


def test_processed_ones_are_after_the_chain_and_removed_tokens_have_none() -> None:
    """LOGP-01: two tokens are left, with 2 and 0 for logits."""
    chain = processors.Temperature(temperature=0.5), processors.TopP(p=0.9)
    entry = first(LOGITS, 3, *chain)
    total = math.log(math.exp(2) + 1)
    assert entry.processed == pytest.approx(2 - total)
    assert numbers(entry.top_processed) == [
        (0, pytest.approx(2 - total)),
        (1, pytest.approx(-total)),
        (2, -math.inf),
    ]
    assert entry.to_dict()["top_processed"][2] == {"token_id": 2, "text": "", "logprob": None}


def test_equal_ones_are_ranked_by_the_model_and_then_by_id() -> None:
    entry = first([0.0, 5.0, 1.0, 3.0, 3.0], 5, processors.TopK(k=1))
    assert [i for i, _ in numbers(entry.top_raw)] == [1, 3, 4, 2, 0]
    assert [i for i, _ in numbers(entry.top_processed)] == [1, 3, 4, 2, 0]


@pytest.mark.parametrize("num_top", [0, 1, 8, 20])
def test_as_many_are_listed_as_there_are(num_top: int) -> None:
    """LOGP-05."""
    entry = first([float(i) for i in range(8)], num_top)
    assert len(entry.top_raw) == len(entry.top_processed) == min(num_top, 8)


def test_nothing_is_taken_down_unless_it_is_asked_for() -> None:
    assert Pipeline(TinyModel()).generate([1], max_new_tokens=2).logprobs is None


@pytest.mark.parametrize("bad", [-1, 1.5, "3", True])
def test_what_is_no_number_of_tokens(bad: Any) -> None:
    with pytest.raises(InputError, match="logprobs is a whole number"):
        Pipeline(TinyModel()).generate([1], logprobs=bad)


def test_rows_of_a_batch_have_what_they_have_alone() -> None:
    model = TinyModel(tokenizer=ByteTokenizer())
    criteria = [stopping.StopTokenIds(token_ids=(40, 90, 17)), stopping.MaxNewTokens(limit=9)]
    chain = [processors.RepetitionPenalty(penalty=1.3), processors.TopK(k=5)]
    pipeline = Pipeline(
        model, processors=chain, sampler=samplers.Categorical(), stop_criteria=criteria
    )
    prompts = ["Hello", "a", "of different lengths"]
    together = pipeline.generate(prompts, seed=3, logprobs=2)
    for prompt, result in zip(prompts, together, strict=True):
        alone = pipeline.generate(prompt, seed=3, logprobs=2)
        assert [entry.token_id for entry in result.logprobs] == result.token_ids == alone.token_ids
        for one, other in zip(result.logprobs, alone.logprobs, strict=True):
            assert one.text == other.text == model.tokenizer.token_text(one.token_id)
            assert one.raw == pytest.approx(other.raw, abs=1e-4)
            assert one.processed == pytest.approx(other.processed, abs=1e-4)
            assert one.raw <= one.top_raw[0].logprob


def test_a_stream_brings_them_with_the_result() -> None:
    pipeline = Pipeline(TinyModel(tokenizer=ByteTokenizer()))
    [*_, last] = pipeline.stream("Hi", max_new_tokens=3, logprobs=1)
    assert len(last.result.logprobs) == 3
    assert [len(e["top_raw"]) for e in last.result.to_dict()["logprobs"]] == [1, 1, 1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 12))
def test_the_most_probable_tokens_are_those_of_a_whole_sort(
    seed: int, n: int, allowed: int
) -> None:
    """Ties in both, forbidden tokens in both, and fewer tokens allowed than are asked for."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(-3, 3, (2, 12), generator=generator).float()
    raw[:, 5] = -math.inf
    processed = (raw / 2).round()
    processed[:, torch.randperm(12, generator=generator)[allowed:]] = -math.inf
    by_raw = raw.sort(dim=-1, descending=True, stable=True).indices
    places = processed.gather(-1, by_raw).sort(dim=-1, descending=True, stable=True).indices
    assert torch.equal(_top(raw, raw, n), by_raw[:, :n])
    assert torch.equal(_top(processed, raw, n), by_raw.gather(-1, places)[:, :n])
