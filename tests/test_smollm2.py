"""The real model through the whole pipeline, against transformers' own generate."""

import pytest
import torch

from genkit import Kit, Pipeline, backends, caches, contexts, processors, samplers, stopping
from genkit.inspect.score import score

TEXT = "The history of the city begins with a small village at the river"
QUESTIONS = ["What is the capital of France?", "Hi!", "Name three colours of the rainbow, please."]


@pytest.fixture(scope="module")
def model():
    return Kit().load(backends.PyTorch(model="smollm2", dtype="float32"))


def by_transformers(model, prompt_ids: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt_ids])
    out = model.module.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
    )
    return out[0, len(prompt_ids) :].tolist()


def check_greedy(model, cache, count: int) -> None:
    pipeline = Pipeline(model, cache=cache, stop_criteria=[stopping.Eos()])
    result = pipeline.generate(TEXT, max_new_tokens=count)
    assert result.token_ids == by_transformers(model, result.prompt_ids, count)


def test_greedy_is_what_transformers_generates(model) -> None:
    check_greedy(model, caches.Dynamic(), 64)


@pytest.mark.slow
def test_greedy_without_a_cache(model) -> None:
    check_greedy(model, caches.NoCache(), 12)


@pytest.mark.slow
@pytest.mark.parametrize("manager", [caches.NoCache, caches.Static, caches.Prefix])
def test_greedy_is_the_same_with_every_exact_cache(model, manager) -> None:
    cache = manager()
    check_greedy(model, cache, 64)
    if manager is caches.Prefix:  # the second run takes its prompt from the first
        check_greedy(model, cache, 64)
        assert cache.stats(model).num_hits == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "cache", [caches.Quantized(bits=8), caches.SinkWindow(num_sinks=2, window=16)], ids=repr
)
def test_a_lossy_cache_gives_a_row_what_it_gives_it_alone(model, cache) -> None:
    # In float32 a rounding of `quantized` may fall the other way, so that texts are short.
    pipeline = Pipeline(model, context=contexts.Chat(), cache=cache)
    together = pipeline.generate(QUESTIONS, max_new_tokens=6, seed=0)
    alone = [pipeline.generate(text, max_new_tokens=6, seed=0) for text in QUESTIONS]
    assert [row.token_ids for row in together] == [row.token_ids for row in alone]


@pytest.mark.slow
def test_compiled_decoding_gives_the_same_tokens(model) -> None:
    compiled = backends.PyTorch.wrap(model.module, model.tokenizer, compile=True)
    prompt = model.tokenizer.encode(TEXT)
    for limit in (100, 40):  # one buffer of 128, one of 64
        wanted = Pipeline(model, stop_criteria=[]).generate(prompt, max_new_tokens=limit)
        pipeline = Pipeline(compiled, cache=caches.Static(), stop_criteria=[])
        assert pipeline.generate(prompt, max_new_tokens=limit).token_ids == wanted.token_ids
    assert compiled.compiled.num_compilations == 2


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
def test_rows_of_a_batch_are_the_prompts_alone(model, greedy: bool) -> None:
    pipeline = Pipeline(
        model,
        context=contexts.Chat(),
        processors=[processors.Temperature(temperature=0.8), processors.TopK(k=50)],
        sampler=samplers.Greedy() if greedy else samplers.Categorical(),
        stop_criteria=[stopping.Eos(), stopping.MaxNewTokens(limit=8)],
    )
    together = pipeline.generate(QUESTIONS, seed=3)
    assert together == [pipeline.generate(question, seed=3) for question in QUESTIONS]
    chunks = list(pipeline.stream(QUESTIONS, seed=3))
    for row, result in enumerate(together):
        assert "".join(chunk.text for chunk in chunks if chunk.row == row) == result.text


def test_the_answer_makes_sense(model) -> None:
    result = Pipeline(model, context=contexts.Chat()).generate(QUESTIONS[0], max_new_tokens=24)
    assert "Paris" in result.text
    assert "<|im_end|>" not in result.text
    assert result.finish_reason == "stop" and result.stop.criterion == "eos"


def test_score_is_the_sum_of_one_plain_forward(model) -> None:
    ids = model.tokenizer.encode(TEXT)
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([ids])).logits[0].double()
    logprobs = logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    ours = score(model, TEXT)
    assert ours.logprob == pytest.approx(float(logprobs.sum()), abs=1e-4)
    assert ours.perplexity == pytest.approx(float((-logprobs.mean()).exp()), rel=1e-5)


@pytest.mark.slow
def test_a_long_prompt_holds_the_logits_of_one_position(model) -> None:
    """4,000 tokens: the head sees what is asked for, one position in generation."""
    widths = []
    hook = model.module.lm_head.register_forward_hook(
        lambda module, inputs, output: widths.append(output.shape[1])
    )
    ids = (model.tokenizer.encode(TEXT) * 400)[:4000]
    try:
        Pipeline(model).generate(ids, max_new_tokens=2)
        assert widths == [1, 1]
        widths.clear()
        score(model, ids)
        assert sum(widths) == 3999 and max(widths) <= 256
    finally:
        hook.remove()
