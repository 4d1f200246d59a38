"""A prompt that is fed in pieces gives what it gives at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zoo
from genkit import Pipeline, caches, stopping
from genkit.backends import PyTorch
from genkit.backends.prefill import pieces
from genkit.errors import OptionError, RecipeError, UnsupportedError
from genkit.inspect.score import score
from genkit.kit import Kit

TOLERANCE = 1e-4  # float32, logits of order 10
STEPS = 3
PROMPTS = [zoo.prompt(5), zoo.prompt(13), zoo.prompt(9)]  # windows are 8 tokens wide
WIDTH = 13
CHUNKS = range(1, WIDTH + 2)
MANAGERS: dict[str, Any] = {
    "none": caches.NoCache,
    "dynamic": caches.Dynamic,
    "static": caches.Static,
    "prefix": caches.Prefix,
    "sink_window": lambda: caches.SinkWindow(num_sinks=1, window=3),
}
NAMES = ("llama", "mistral", "gemma3", "gpt2", "bloom")
COUNTING = ("mistral", "gemma3", "bloom")  # `sink_window` does not serve them


def chunked(name: str, chunk: int | None) -> Any:
    return PyTorch.wrap(zoo.shared(name).module, prefill_chunk=chunk)


def run(model: Any, manager: Any, prompts: Any = PROMPTS) -> tuple[list[int], Any, Any]:
    """The width of each forward, the logits and the tokens of each step."""
    pipeline = Pipeline(model, cache=manager, stop_criteria=[stopping.MaxNewTokens(limit=STEPS)])
    widths: list[int] = []
    with model.module.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1])):
        steps = list(pipeline.decode(prompts))
    logits = torch.stack([step.raw_logits for step in steps])
    return widths, logits, [step.next_ids.tolist() for step in steps]


# --- pieces ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_columns", "n", "chunk", "expected"),
    [
        (10, 1, None, [(0, 10)]),
        (10, 1, 10, [(0, 10)]),
        (10, 1, 11, [(0, 10)]),
        (10, 1, 9, [(0, 9), (9, 10)]),
        (10, 1, 5, [(0, 5), (5, 10)]),
        (10, 1, 4, [(0, 4), (4, 8), (8, 10)]),
        (3, 1, 1, [(0, 1), (1, 2), (2, 3)]),
        (1, 1, 1, [(0, 1)]),
        (10, 3, 4, [(0, 4), (4, 7), (7, 10)]),  # the last three are wanted together
        (10, 7, 4, [(0, 3), (3, 10)]),
        (10, 10, 4, [(0, 10)]),
    ],
)
def test_where_a_prompt_is_cut(
    num_columns: int, n: int, chunk: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(pieces(num_columns, n, chunk)) == expected


@given(st.integers(1, 60), st.data())
def test_pieces_follow_each_other_and_the_last_has_what_is_wanted(
    num_columns: int, data: Any
) -> None:
    n = data.draw(st.integers(1, num_columns))
    chunk = data.draw(st.integers(1, 70))
    found = list(pieces(num_columns, n, chunk))
    assert [column for piece in found for column in range(*piece)] == list(range(num_columns))
    assert all(1 <= end - start <= max(chunk, n) for start, end in found)
    assert found[-1][1] - found[-1][0] >= n
    assert len(found) <= 1 + math.ceil((num_columns - n) / chunk)


# --- the same logits and tokens ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "manager"),
    [
        (name, manager)
        for name in NAMES
        for manager in MANAGERS
        if manager != "sink_window" or name not in COUNTING
    ],
)
def test_every_chunk_gives_the_same_logits_and_tokens(name: str, manager: str) -> None:
    _, logits, tokens = run(zoo.shared(name), MANAGERS[manager]())
    every = manager != "none" or name == "llama"  # where each step is a prefill
    for chunk in CHUNKS if every else (1, 5, WIDTH):
        widths, given_logits, given_tokens = run(chunked(name, chunk), MANAGERS[manager]())
        assert (given_logits - logits).abs().max() < TOLERANCE, f"{chunk=}"
        assert given_tokens == tokens
        # Without a cache all that there is so far is fed again, in pieces too.
        fed = [WIDTH + step if manager == "none" or not step else 1 for step in range(STEPS)]
        assert len(widths) == sum(math.ceil(columns / chunk) for columns in fed)
        assert max(widths) == min(chunk, max(fed))


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_stored_prefix_is_fed_in_pieces(name: str) -> None:
    prompt = zoo.prompt(20)
    _, logits, tokens = run(zoo.shared(name), caches.Dynamic(), [prompt])
    for chunk in (1, 3, 7, 13):
        model, manager = chunked(name, chunk), caches.Prefix()
        Pipeline(model, cache=manager).generate(prompt[:6], max_new_tokens=1)
        widths, given_logits, given_tokens = run(model, manager, [prompt])
        assert len(widths) == math.ceil(14 / chunk) + STEPS - 1
        assert (given_logits - logits).abs().max() < TOLERANCE
        assert given_tokens == tokens


@pytest.mark.parametrize("name", NAMES)
def test_a_lossy_cache_runs_in_pieces(name: str) -> None:
    """`quantized` rounds each piece before the next one reads it, so the logits are others."""
    for chunk in (1, 4, 13):
        widths, logits, tokens = run(chunked(name, chunk), caches.Quantized(bits=8, group_size=4))
        assert widths == [*[chunk] * (WIDTH // chunk), *[1] * (WIDTH % chunk), *[1] * (STEPS - 1)]
        assert logits.isfinite().all()
        assert [len(rows) for rows in tokens] == [len(PROMPTS)] * STEPS


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_after_a_piece_that_failed_the_pieces_before_it_stay(name: str, lab: Any) -> None:
    model = chunked(name, 4)
    state = lab.state_of(model, PROMPTS)
    cache = model.new_cache(state)
    num_forwards = 0

    def fail_once(*_: Any) -> None:
        nonlocal num_forwards
        num_forwards += 1
        if num_forwards == 2:
            raise RuntimeError("no memory")

    with model.module.model.layers[1].mlp.register_forward_hook(fail_once):
        with pytest.raises(RuntimeError, match="no memory"):
            model(state.token_ids, cache)
        assert cache.length == 4
        given = model(state.since(4), cache)
    whole = zoo.shared(name)
    wanted = whole(state.token_ids, whole.new_cache(state))
    assert (given - wanted).abs().max() < TOLERANCE


# --- more than one position --------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 4, 6, 20])
@pytest.mark.parametrize("name", NAMES)
def test_positions_that_are_wanted_come_from_one_piece(name: str, n: int, lab: Any) -> None:
    ids, model, whole = zoo.prompt(20), chunked(name, 4), zoo.shared(name)
    state = lab.state_of(model, [ids])
    widths: list[int] = []
    with model.module.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1])):
        given = model.last(state.token_ids, model.new_cache(state), n)
    assert given.shape == (1, n, zoo.VOCAB_SIZE)
    assert (given - whole.last(state.token_ids, whole.new_cache(state), n)).abs().max() < TOLERANCE
    assert widths == [end - start for start, end in pieces(20, n, 4)]
    assert max(widths) == max(4, n)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_is_the_same(name: str) -> None:
    ids = zoo.prompt(150)  # more than is scored at once
    wanted = score(zoo.shared(name), ids)
    given = score(chunked(name, 7), ids)
    assert given.logprob == pytest.approx(wanted.logprob, abs=150 * TOLERANCE)
    for token, expected in zip(given.tokens[1:], wanted.tokens[1:], strict=True):
        assert token.logprob == pytest.approx(expected.logprob, abs=TOLERANCE)


# --- the option --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_recurrent_model_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="`prefill_chunk`: .* takes a prompt in one piece"):
        chunked(name, 4)


def test_a_recipe_asks_for_it(save_folder: Any) -> None:
    backend = {"type": "pytorch", "model": str(save_folder()), "device": "cpu", "prefill_chunk": 4}
    pipeline = Kit(entry_points=False).build({"version": 1, "backend": backend})
    widths, _, tokens = run(pipeline.model, caches.Dynamic())
    assert widths == [4, 4, 4, 1, 1, 1]
    assert tokens == run(zoo.shared("llama"), caches.Dynamic())[2]


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True])
def test_a_size_that_is_none_is_refused(chunk: Any) -> None:
    backend = {"type": "pytorch", "model": "anywhere", "prefill_chunk": chunk}
    with pytest.raises(RecipeError) as caught:
        Kit(entry_points=False).recipe({"version": 1, "backend": backend})
    assert [problem.path for problem in caught.value.problems] == [("backend", "prefill_chunk")]
    with pytest.raises(OptionError, match="prefill_chunk"):
        PyTorch(model="anywhere", prefill_chunk=chunk)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_wrapped_model_has_pieces_of_one_column_at_least(chunk: int) -> None:
    with pytest.raises(OptionError, match="prefill_chunk: at least 1"):
        PyTorch.wrap(zoo.build("llama"), prefill_chunk=chunk)
