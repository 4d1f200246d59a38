"""How vectors of penalties, n-gram bans and DRY are reproduced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch

from genkit.components.breakers import breaker_sequences
from genkit.components.processors import (
    Dry,
    FrequencyPenalty,
    NoRepeatNGram,
    PresencePenalty,
    PromptNoRepeatNGram,
    PromptRepetitionPenalty,
    RepetitionPenalty,
)
from genkit.text.tokenizer import Tokenizer
from vectors import Vector, apply, rows_of

EXCUSED: dict[str, str] = {}
"""Vectors that are not reproduced, and why."""


# llama.cpp. A window of 0 or less turns its parts off.


def llama_cpp_penalties(vector: Vector) -> None:
    p = vector.params
    scope: dict[str, Any] = {"scope": "all", "window": max(0, p["last_n"])}
    found = vector.apply(
        [
            RepetitionPenalty(penalty=p["repeat"], **scope),
            FrequencyPenalty(penalty=p["frequency"], presence=p["presence"], **scope),
        ]
    )
    vector.compare(found, bits=True)


def dry_parts(params: dict[str, Any], **breakers: Any) -> list[Dry]:
    if params["base"] < 1:  # off
        return []
    names = ("multiplier", "base", "allowed_length")
    options = {name: params[name] for name in names} | {"breakers": (), **breakers}
    return [Dry(window=max(0, params["last_n"]), **options)]


def llama_cpp_dry(vector: Vector) -> None:
    vector.compare(vector.apply(dry_parts(vector.params, breaker_ids=vector.params["breakers"])))


TAILS = {"wo one": [6466, 582], " one": [582], " the": [260]}


class Pieces:
    """The tokens of a vector's columns, and how the rest of a breaker falls into tokens.

    Other tokens of the vocabulary have no text here.
    """

    vocab_size = 49152

    def __init__(self, vector: Vector) -> None:
        self.pieces = dict(zip(vector["ids"], vector["pieces"], strict=True))

    def token_text(self, token_id: int) -> str:
        return self.pieces.get(token_id, "")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return TAILS.get(text, [])


def llama_cpp_dry_strings(vector: Vector) -> None:
    params, tokenizer = vector.params, Pieces(vector)
    columns = torch.tensor(vector["ids"])
    logits = torch.full((1, tokenizer.vocab_size), -math.inf)
    logits[:, columns] = vector.logits
    [history] = vector.history
    parts = dry_parts(params, breakers=params["breaker_strings"])
    found = apply(parts, logits, prompts=[history], generated=[[]], tokenizer=tokenizer)
    vector.compare(found[:, columns])
    sequences = breaker_sequences(cast(Tokenizer, tokenizer), params["breaker_strings"])
    assert sequences == set(map(tuple, params["breaker_token_sequences"]))


# mlx-lm. The window is over prompt and answer.


def mlx(part: type[RepetitionPenalty | PresencePenalty | FrequencyPenalty]) -> Any:
    def reproduce(vector: Vector) -> None:
        p = vector.params
        processor = part(penalty=p["penalty"], scope="all", window=p["context_size"])
        vector.compare(vector.apply([processor]))

    return reproduce


# transformers.


def transformers_repetition_penalty(vector: Vector) -> None:
    """`prompt_ignore_length` says how long the prompt is that does not count."""
    lengths = vector.params["prompt_ignore_length"] or 0
    if isinstance(lengths, int):
        lengths = [lengths] * len(vector.history)
    halves = list(zip(vector.history, lengths, strict=True))
    found = vector.apply(
        [RepetitionPenalty(penalty=vector.params["penalty"], scope="output")],
        prompts=[row[:length] for row, length in halves],
        generated=[row[length:] for row, length in halves],
    )
    vector.compare(found, bits=True)


def transformers_encoder_repetition_penalty(vector: Vector) -> None:
    found = vector.apply(
        [PromptRepetitionPenalty(penalty=vector.params["penalty"])],
        prompts=vector.params["encoder_input_ids"],
        generated=vector.history,
    )
    vector.compare(found, bits=True)


def transformers_no_repeat_ngram(vector: Vector) -> None:
    found = vector.apply([NoRepeatNGram(n=vector.params["no_repeat_ngram_size"])])
    vector.compare(found, bits=True)


def transformers_encoder_no_repeat_ngram(vector: Vector) -> None:
    """The encoder's text is not before the answer, as a prompt is, so the state lacks it."""
    part = PromptNoRepeatNGram(n=vector.params["encoder_no_repeat_ngram_size"])
    prompts, answers = vector.params["encoder_input_ids"], vector.history
    run, state = rows_of(prompts, answers, vector.logits.shape[1])
    if part.n > 1:
        _, state = rows_of([[] for _ in answers], answers, vector.logits.shape[1])
    vector.compare(part.bind(run)(state, vector.logits), bits=True)


# vllm and sglang.


def vllm_penalties(vector: Vector) -> None:
    p = vector.params
    found = vector.apply(
        [
            RepetitionPenalty(penalty=p["repetition"], scope="all", positive="reciprocal"),
            FrequencyPenalty(penalty=p["frequency"], scope="output"),
            PresencePenalty(penalty=p["presence"], scope="output"),
        ]
    )
    vector.compare(found, bits=True)


def sglang_penalties(vector: Vector) -> None:
    p = vector.params
    found = vector.apply(
        [
            FrequencyPenalty(penalty=p["frequency"], presence=p["presence"], scope="output"),
            RepetitionPenalty(penalty=p["repetition"], scope="output"),
        ]
    )
    vector.compare(found)


# onnxruntime-genai: the greedy tokens of successive steps, all with the same logits.


def greedy(vector: Vector, part: Any) -> None:
    [prompt], [answer] = vector.prompt_and_generated()
    vocab_size = vector.logits.shape[1]
    run, state = rows_of([prompt], [answer], vocab_size)
    bound = part.bind(run)
    for token_id in vector["tokens"]:
        logits = vector.logits if bound is None else bound(state, vector.logits)
        next_ids = logits.argmax(-1)
        assert next_ids.tolist() == [token_id]
        state.append(next_ids)


def genai_repetition_penalty(vector: Vector) -> None:
    greedy(vector, RepetitionPenalty(penalty=vector.params["repetition_penalty"]))


def genai_no_repeat_ngram(vector: Vector) -> None:
    greedy(vector, NoRepeatNGram(n=vector.params["no_repeat_ngram_size"]))


OPS: dict[tuple[str, str], Callable[[Vector], None]] = {
    ("llama.cpp", "penalties"): llama_cpp_penalties,
    ("llama.cpp", "dry"): llama_cpp_dry,
    ("llama.cpp", "dry_strings"): llama_cpp_dry_strings,
    ("mlx-lm", "repetition_penalty"): mlx(RepetitionPenalty),
    ("mlx-lm", "presence_penalty"): mlx(PresencePenalty),
    ("mlx-lm", "frequency_penalty"): mlx(FrequencyPenalty),
    ("transformers", "repetition_penalty"): transformers_repetition_penalty,
    ("transformers", "encoder_repetition_penalty"): transformers_encoder_repetition_penalty,
    ("transformers", "no_repeat_ngram"): transformers_no_repeat_ngram,
    ("transformers", "encoder_no_repeat_ngram"): transformers_encoder_no_repeat_ngram,
    ("vllm", "penalties"): vllm_penalties,
    ("sglang", "penalties"): sglang_penalties,
    ("onnxruntime-genai", "repetition_penalty_greedy"): genai_repetition_penalty,
    ("onnxruntime-genai", "no_repeat_ngram_greedy"): genai_no_repeat_ngram,
}
"""By engine and operation: reproduces a vector, or fails."""
