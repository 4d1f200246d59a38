"""Threads that share one pipeline get what each would get alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import zoo
from genkit import Pipeline, caches, processors, samplers, stopping
from genkit.backends.pytorch_model import PyTorchModel
from genkit.testing import TinyModel

NUM_THREADS = 20
NUM_TOKENS = 4
LENGTHS = [3 + 2 * (i % 10) for i in range(NUM_THREADS)]
CHAIN = [
    processors.RepetitionPenalty(penalty=1.3),
    processors.Temperature(temperature=0.9),
    processors.TopK(k=40),
    processors.TopP(p=0.95),
]
SAMPLERS: dict[str, tuple[list[Any], Any]] = {
    "greedy": ([], samplers.Greedy()),
    "sampled": (CHAIN, samplers.Categorical()),
}
MANAGERS = {
    "NoCache": caches.NoCache(),
    "Dynamic": caches.Dynamic(),
    "Static": caches.Static(),
    "Prefix": caches.Prefix(),  # the one object that all threads read from and write to
    "Quantized": caches.Quantized(bits=8, group_size=4),
    "SinkWindow": caches.SinkWindow(num_sinks=2, window=6),
}


def at_once(work: Callable[[int], Any], num_threads: int = NUM_THREADS) -> list[Any]:
    """What `work(i)` gives in each of several threads that begin together; errors too."""
    barrier = threading.Barrier(num_threads)
    found: list[Any] = [None] * num_threads

    def run(i: int) -> None:
        barrier.wait()
        try:
            found[i] = work(i)
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def pipeline(model: Any, sampling: str, cache: Any) -> Pipeline:
    chain, sampler = SAMPLERS[sampling]
    limits = [stopping.MaxNewTokens(limit=NUM_TOKENS)]
    return Pipeline(model, processors=chain, sampler=sampler, cache=cache, stop_criteria=limits)


def prompts() -> list[list[int]]:
    """Of ten lengths; those of one length differ."""
    return [zoo.prompt(n, seed=i) for i, n in enumerate(LENGTHS)]


def state_of(module: Any) -> list[dict[str, Any]]:
    """The attributes of a module and of all its parts: which there are, and what they are."""
    return [
        {name: id(value) for name, value in vars(part).items()}
        | {name: id(buffer) for name, buffer in part.named_buffers(recurse=False)}
        for part in module.modules()
    ]


def test_every_manager_is_shared_by_threads() -> None:
    assert set(MANAGERS) == set(caches.__all__)


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("sampling", SAMPLERS)
def test_twenty_threads_over_a_model_of_transformers(sampling: str, manager: str) -> None:
    """THR-01: each result is the sequential one, and no attribute of the model changes."""
    model = zoo.shared("llama")
    texts = prompts()
    alone = [
        pipeline(model, sampling, MANAGERS[manager].model_copy()).generate(ids, seed=i)
        for i, ids in enumerate(texts)
    ]
    shared = pipeline(model, sampling, MANAGERS[manager])
    before, wrapper = state_of(model.module), set(vars(model))
    attributes = vars(shared).copy()
    assert at_once(lambda i: shared.generate(texts[i], seed=i)) == alone
    assert state_of(model.module) == before
    assert set(vars(model)) == wrapper
    assert vars(shared) == attributes


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_threads_that_stream(sampling: str) -> None:
    """THR-04: each has its own text, though all read step by step from one pipeline."""
    shared = pipeline(TinyModel(), sampling, caches.Dynamic())
    texts = ["".join(chr(97 + token_id % 26) for token_id in ids) for ids in prompts()]
    alone = [shared.generate(text, seed=i) for i, text in enumerate(texts)]
    turn = threading.Barrier(NUM_THREADS)

    def stream(i: int) -> Any:
        text, result = "", None
        for step, chunk in enumerate(shared.stream(texts[i], seed=i)):
            if step == 0:
                turn.wait(30)  # all have begun, and none goes on before that
            text += chunk.text
            result = chunk.result
        return text, result

    assert at_once(stream) == [(result.text, result) for result in alone]


def test_threads_with_batches_whose_rows_end_at_different_steps() -> None:
    criteria = [stopping.StopStrings(strings=["a", "e", "~"]), stopping.MaxNewTokens(limit=12)]
    shared = Pipeline(
        TinyModel(), processors=CHAIN, sampler=samplers.Categorical(), stop_criteria=criteria
    )
    batches = [["x" * (1 + i), "y", "zz"] for i in range(NUM_THREADS)]

    def generate(i: int) -> Any:
        return shared.generate(batches[i], seeds=[i, i + 1, i + 2])

    alone = [generate(i) for i in range(NUM_THREADS)]
    assert at_once(generate) == alone
    assert len({row.num_generated_tokens for batch in alone for row in batch}) > 1


def test_threads_share_what_a_prefix_has_stored() -> None:
    """All prompts begin alike; whoever comes first stores what the others then take."""
    model, cache = zoo.shared("gemma3"), caches.Prefix()
    common = zoo.prompt(40)
    texts = [[*common, *zoo.prompt(1 + i, seed=i)] for i in range(NUM_THREADS)]
    cold = pipeline(model, "sampled", caches.Dynamic())
    alone = [cold.generate(ids, seed=i) for i, ids in enumerate(texts)]
    shared = pipeline(model, "sampled", cache)
    assert shared.generate(common, seed=0).num_generated_tokens == NUM_TOKENS
    for _ in range(2):
        assert at_once(lambda i: shared.generate(texts[i], seed=i)) == alone
    assert cache.stats(model).num_hits == 2 * NUM_THREADS


def test_a_thread_whose_run_fails_costs_the_others_nothing() -> None:
    model = TinyModel()

    def odd(state: Any, logits: Any) -> Any:
        if int(state.row(0)[0]) == 5 and int(state.num_generated[0]) == 2:
            raise RuntimeError("a part that fails")
        return logits

    shared = Pipeline(model, processors=[odd], stop_criteria=[stopping.MaxNewTokens(limit=6)])
    texts = [[5 if i % 4 == 0 else 6, *ids] for i, ids in enumerate(prompts())]
    found = at_once(lambda i: shared.generate(texts[i], seed=i))
    plain = Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=6)])
    for i, result in enumerate(found):
        if i % 4 == 0:
            assert "a part that fails" in str(result)
            assert len(result.partial_results[0].token_ids) == 2
        else:
            assert result == plain.generate(texts[i], seed=i)


@pytest.mark.slow
def test_threads_over_two_compiled_models() -> None:
    """PyTorch's tracer serves one thread at a time."""
    plain = [zoo.shared(name) for name in ("llama", "gemma3")]
    compiled = [PyTorchModel(each.module, each.facts, compiler="eager") for each in plain]
    pipelines = [
        Pipeline(model, cache=caches.Static(), stop_criteria=[stopping.MaxNewTokens(limit=limit)])
        for model, limit in zip(compiled, (40, 60), strict=True)
    ]
    texts = prompts()
    found = at_once(lambda i: pipelines[i % 2].generate(texts[i]).token_ids)
    assert found == [
        Pipeline(plain[i % 2]).generate(ids, max_new_tokens=(40, 60)[i % 2]).token_ids
        for i, ids in enumerate(texts)
    ]
