"""How vectors of these operations are reproduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import vectors
from genkit.components.processors import (
    BadWords,
    BeginSuppressTokens,
    ForcedBos,
    ForcedEos,
    LengthDecay,
    MinLength,
    MinNewTokens,
    PrefixAllowedTokens,
    SequenceBias,
    SuppressTokens,
    TokenBias,
    Watermark,
)
from vectors import Vector

MOST_GREEDY_STEPS = 8


def logit_bias(vector: Vector) -> None:
    """An id that is listed twice gets both, one after the other."""
    parts = [TokenBias(biases={i: bias}) for i, bias in vector.params["bias"]]
    vector.compare(vector.apply(parts), bits=True)


def sequence_bias(vector: Vector) -> None:
    """Of equal sequences the last one counts."""
    biases = {tuple(ids): bias for ids, bias in vector.params["sequence_bias"]}
    sequences = [{"token_ids": ids, "bias": bias} for ids, bias in biases.items()]
    vector.compare(vector.apply([SequenceBias(sequences=sequences)]))


def bad_words(vector: Vector) -> None:
    ends = as_list(vector.params["eos_token_id"])
    part = BadWords(token_ids=vector.params["bad_words_ids"], spare_end_tokens=True)
    vector.compare(vector.apply([part], eos=ends), bits=True)


def bad_words_of_output(vector: Vector) -> None:
    part = BadWords(token_ids=vector.params["bad_words_token_ids"], scope="output")
    vector.compare(vector.apply([part]), bits=True)


def prefix_allowed_tokens(vector: Vector) -> None:
    allowed = vector.params["allowed_per_row"]
    part = PrefixAllowedTokens(function=lambda row, _: allowed[row], if_none_left="allow")
    vector.compare(vector.apply([part]), bits=True)


def suppress_tokens(vector: Vector) -> None:
    part = SuppressTokens(token_ids=vector.params["suppress_tokens"])
    vector.compare(vector.apply([part]), bits=True)


def begin_suppress_tokens(vector: Vector) -> None:
    """The engine's index counts the prompt: here everything is an answer."""
    part = BeginSuppressTokens(
        token_ids=vector.params["begin_suppress_tokens"],
        begin_index=vector.params["begin_index"],
    )
    vector.compare(vector.apply([part], **after_prompts_of(0, vector)), bits=True)


def min_length(vector: Vector) -> None:
    part = MinLength(limit=vector.params["min_length"])
    vector.compare(vector.apply([part], eos=vector.params["eos_token_id"]), bits=True)


def min_new_tokens(vector: Vector) -> None:
    part = MinNewTokens(limit=vector.params["min_new_tokens"])
    facts = after_prompts_of(vector.params["prompt_length"], vector)
    vector.compare(vector.apply([part], eos=vector.params["eos_token_id"], **facts), bits=True)


def min_new_tokens_and_stop_ids(vector: Vector) -> None:
    params = vector.params
    part = MinNewTokens(limit=params["min_new_tokens"], token_ids=params["stop_token_ids"])
    vector.compare(vector.apply([part], eos=[params["eos_token_id"]]), bits=True)


def min_length_greedy(vector: Vector) -> None:
    """The most probable token until it is an end token; the logits are always the same."""
    part, end = MinLength(limit=vector.params["min_length"]), vector.params["eos_token_id"]
    generated: list[int] = []
    while len(generated) < MOST_GREEDY_STEPS:
        chosen = int(vector.apply([part], eos=[end], generated=[generated]).argmax())
        if chosen == end:
            break
        generated.append(chosen)
    assert generated == vector["tokens"]


def length_decay(vector: Vector) -> None:
    part = LengthDecay(start=vector.params["start"], factor=vector.params["factor"])
    facts = after_prompts_of(vector.params["prompt_length"], vector)
    vector.compare(vector.apply([part], eos=vector.params["eos_token_id"], **facts))


def forced_bos(vector: Vector) -> None:
    part = ForcedBos(token_id=vector.params["forced_bos_token_id"], place="second_of_text")
    vector.compare(vector.apply([part]), bits=True)


def forced_eos(vector: Vector) -> None:
    part = ForcedEos(token_ids=vector.params["forced_eos_token_id"])
    vector.compare(vector.apply([part], limit=vector.params["max_length"]), bits=True)


def green_list(vector: Vector) -> None:
    params = vector.params
    assert params["vocab_size"] == vector.logits.shape[1]
    scheme = {
        "type": "green_list",
        "ratio": params["greenlist_ratio"],
        "bias": params["bias"],
        "hashing_key": params["hashing_key"],
        "seeding": params["seeding_scheme"],
        "context_width": params["context_width"],
    }
    vector.compare(vector.apply([Watermark(scheme=scheme)]), bits=True)


def synthid(vector: Vector) -> None:
    """A run of several steps; the engine does not look at the prompt."""
    first, *others = vector["steps"]
    part = Watermark(scheme={"type": "synthid", **vector.params})
    prompts = first["history"]
    run, state = vectors.rows_of(prompts, [[] for _ in prompts], len(first["logits"][0]))
    bound = part.bind(run)
    assert "".join(map(str, bound.table.int().tolist())) == vector["sampling_table"]
    compare_logprobs(first, bound(state, vectors.numbers(first["logits"])))
    for step in others:
        state.append(torch.tensor([ids[-1] for ids in step["history"]]))
        compare_logprobs(step, bound(state, vectors.numbers(step["logits"])))


def compare_logprobs(step: dict[str, Any], found: torch.Tensor) -> None:
    """The engine takes logarithms of float32: a relative error of p is an absolute one of ln p."""
    wanted = vectors.numbers(step["out_logits"])
    torch.testing.assert_close(found, wanted, rtol=vectors.RELATIVE, atol=vectors.RELATIVE)
    differences = found.softmax(-1) - vectors.numbers(step["out_probs"])
    assert differences.abs().max() <= vectors.PROBABILITY


def after_prompts_of(length: int, vector: Vector) -> dict[str, Any]:
    """The tokens of each row, of which the first `length` are its prompt."""
    history = vector.history
    return {
        "prompts": [row[:length] for row in history],
        "generated": [row[length:] for row in history],
    }


def as_list(token_ids: Any) -> list[int]:
    return token_ids if isinstance(token_ids, list) else [] if token_ids is None else [token_ids]


OPS: dict[tuple[str, str], Callable[[Vector], None]] = {
    ("llama.cpp", "logit_bias"): logit_bias,
    ("mlx-lm", "logit_bias"): logit_bias,
    ("onnxruntime-genai", "min_length_greedy"): min_length_greedy,
    ("sglang", "min_new_tokens"): min_new_tokens_and_stop_ids,
    ("transformers", "bad_words"): bad_words,
    ("transformers", "begin_suppress_tokens"): begin_suppress_tokens,
    ("transformers", "exponential_decay_length_penalty"): length_decay,
    ("transformers", "forced_bos"): forced_bos,
    ("transformers", "forced_eos"): forced_eos,
    ("transformers", "min_length"): min_length,
    ("transformers", "min_new_tokens"): min_new_tokens,
    ("transformers", "prefix_allowed_tokens"): prefix_allowed_tokens,
    ("transformers", "sequence_bias"): sequence_bias,
    ("transformers", "suppress_tokens"): suppress_tokens,
    ("transformers", "watermark_green_red"): green_list,
    ("transformers", "watermark_synthid"): synthid,
    ("vllm", "bad_words"): bad_words_of_output,
}
"""By engine and operation: reproduces a vector, or fails."""

_UNKNOWN = "the engine passes over ids that the vocabulary does not have; here they are an error"

EXCUSED: dict[str, str] = {
    f"transformers/{op}/{number}": _UNKNOWN
    for op in ("suppress_tokens", "begin_suppress_tokens")
    for number in ("0003", "0011")
}
"""Vectors that are not reproduced, and why."""
