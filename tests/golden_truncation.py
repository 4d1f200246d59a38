"""How vectors of temperatures and truncations are reproduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import vectors
from genkit.components.processors import (
    DynamicTemperature,
    Epsilon,
    Eta,
    MinP,
    RemoveInvalid,
    Renormalize,
    Temperature,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from vectors import Vector

Parts = Callable[[dict[str, Any]], list[Any]]

_STABLE = 16
"""Up to so many candidates the sort of llama.cpp leaves equal ones, and NaN, in their order."""


def _truncated(parts: Parts) -> Callable[[Vector], None]:
    """Compares what parts keep, whose logits stay as they are."""

    def check(vector: Vector) -> None:
        found = vector.apply(parts(vector.params))
        if not (vector.get("border") and _differs_by_rounding(vector, found)):
            vector.compare(found, bits=True)

    return check


def _differs_by_rounding(vector: Vector, found: torch.Tensor) -> bool:
    """Whether tokens that only one of two results keeps have no more mass than float32 sums err."""
    kept = vectors.numbers(vector["out_logits"]) > -torch.inf
    disputed = vector.logits.double().softmax(-1) * (kept != (found > -torch.inf))
    return float(disputed.sum(-1).max()) <= vectors.PROBABILITY


# --- llama.cpp: values at or below 0 often mean that a sampler is off ---------------------


def _llama_temperature(params: dict[str, Any]) -> list[Any]:
    return [Temperature(temperature=max(params["t"], 0))]


def _llama_dynamic(vector: Vector) -> None:
    t, delta, exponent = (vector.params[key] for key in ("t", "delta", "exponent"))
    if delta <= 0:
        vector.compare(vector.apply([Temperature(temperature=t)]), bits=True)
        return
    part = DynamicTemperature(low=max(0, t - delta), high=t + delta, exponent=exponent)
    vector.compare(vector.apply([part]))


def _llama_top_k(params: dict[str, Any]) -> list[Any]:
    return [TopK(k=params["k"])] if params["k"] > 0 else []


def _llama_top_p(params: dict[str, Any]) -> list[Any]:
    p = min(max(params["p"], 0), 1)
    return [TopP(p=p, min_keep=max(params["min_keep"], 1))]


def _llama_min_p(params: dict[str, Any]) -> list[Any]:
    if params["p"] <= 0:
        return []
    if params["p"] > 1:  # which no token reaches
        return [TopK(k=max(params["min_keep"], 1))]
    return [MinP(min_p=params["p"], min_keep=params["min_keep"])]


def _llama_typical(params: dict[str, Any]) -> list[Any]:
    return [TypicalP(p=min(params["p"], 1), rule="above<=p", min_keep=max(params["min_keep"], 1))]


def _llama_typical_p(vector: Vector) -> None:
    if not vector.get("nan_entropy"):
        _truncated(_llama_typical)(vector)
    elif vector.logits.shape[1] <= _STABLE:
        _truncated(lambda params: [TopP(p=params["p"], rule="above<=p")])(vector)
    else:  # what the engine did follows no rule: tokens without probability play no part here
        found = vector.apply(_llama_typical(vector.params))
        probs = vector.logits.softmax(-1)
        possible = vector.logits.masked_fill(probs == 0, -torch.inf)
        assert torch.equal(found, _apply(_llama_typical(vector.params), possible))
        assert probs[found > -torch.inf].sum() > vector.params["p"]


def _llama_top_n_sigma(params: dict[str, Any]) -> list[Any]:
    return [TopNSigma(n=params["n"])] if params["n"] > 0 else []


def _llama_xtc(params: dict[str, Any]) -> list[Any]:
    return [
        Xtc(
            probability=params["probability"],
            threshold=params["threshold"],
            min_keep=max(params["min_keep"], 1),
        )
    ]


class _Rolls:
    """Gives one number for every draw."""

    def __init__(self, number: float) -> None:
        self.number = torch.tensor([number], dtype=torch.float64)

    def uniform(self, purpose: str) -> torch.Tensor:
        return self.number


def _llama_rolled(vector: Vector) -> None:
    """The first number of the engine's generator: a 32-bit word of MT19937 as float32."""
    word = np.random.RandomState(vector.params["seed"])._bit_generator.random_raw()
    run, state = vectors.rows_of([[]], [[]], vector.logits.shape[1])
    state.rng = _Rolls(float(np.float32(word) / np.float32(2**32)))
    [part] = _llama_xtc(vector.params)
    vector.compare(part.bind(run)(state, vector.logits), bits=True)


# --- transformers and vLLM --------------------------------------------------------------


def _log_softmax(vector: Vector) -> None:
    """A log-probability near 0 is a difference, and as exact as what it is a difference of."""
    found, expected = vector.apply([Renormalize()]), vectors.numbers(vector["out_logits"])
    kept = expected > -torch.inf
    assert torch.equal(found > -torch.inf, kept)
    allowed = vectors.RELATIVE * torch.maximum(expected.abs(), vector.logits.abs())
    assert ((found - expected).abs() <= allowed)[kept].all()


def _vllm_top_k_top_p(vector: Vector) -> None:
    rows = [
        _apply([TopK(k=k, ties="keep"), *_p(p)], logits.unsqueeze(0))
        for logits, k, p in zip(
            vector.logits, vector.params["top_k"], vector.params["top_p"], strict=True
        )
    ]
    vector.compare(torch.cat(rows), bits=True)


def _apply(parts: Sequence[Any], logits: torch.Tensor) -> torch.Tensor:
    return vectors.apply(parts, logits, prompts=[[]], generated=[[]])


def _p(p: float, min_keep: int = 1) -> list[Any]:
    """With p = 1 tokens are removed whose float32 probability is 0: below half its least number."""
    return [TopP(p=p, min_keep=min_keep) if p < 1 else Epsilon(epsilon=2.0**-150)]


# --- SGLang: what is recorded are probabilities, 0 where a token is removed ---------------


def _weighted(parts: Parts) -> Callable[[Vector], None]:
    def check(vector: Vector) -> None:
        found = vector.apply(parts(vector.params))
        found = found.masked_fill(found.softmax(-1) == 0, -torch.inf)
        weights = vectors.numbers(vector["out_weights"])
        kept = vector.logits.masked_fill(weights == 0, -torch.inf)
        Vector({**vector.raw, "out_logits": kept.tolist()}).compare(found, bits=True)

    return check


OPS: dict[tuple[str, str], Callable[[Vector], None]] = {
    ("llama.cpp", "temp"): _truncated(_llama_temperature),
    ("llama.cpp", "temp_ext"): _llama_dynamic,
    ("llama.cpp", "top_k"): _truncated(_llama_top_k),
    ("llama.cpp", "top_p"): _truncated(_llama_top_p),
    ("llama.cpp", "min_p"): _truncated(_llama_min_p),
    ("llama.cpp", "typical"): _llama_typical_p,
    ("llama.cpp", "top_n_sigma"): _truncated(_llama_top_n_sigma),
    ("llama.cpp", "xtc"): _truncated(_llama_xtc),
    ("llama.cpp", "xtc_rolled"): _llama_rolled,
    ("transformers", "temperature"): _truncated(
        lambda params: [Temperature(temperature=params["temperature"])]
    ),
    ("transformers", "top_k"): _truncated(
        lambda params: [TopK(k=params["top_k"], ties="keep", min_keep=params["min_tokens_to_keep"])]
    ),
    ("transformers", "top_p"): _truncated(
        lambda params: _p(params["top_p"], params["min_tokens_to_keep"])
    ),
    ("transformers", "min_p"): _truncated(
        lambda params: [MinP(min_p=params["min_p"], min_keep=params["min_tokens_to_keep"])]
    ),
    ("transformers", "typical"): _truncated(
        lambda params: [
            TypicalP(p=params["typical_p"], ties="keep", min_keep=params["min_tokens_to_keep"])
        ]
    ),
    ("transformers", "epsilon"): _truncated(
        lambda params: [
            Epsilon(epsilon=params["epsilon_cutoff"], min_keep=params["min_tokens_to_keep"])
        ]
    ),
    ("transformers", "eta"): _truncated(
        lambda params: [Eta(epsilon=params["eta_cutoff"], min_keep=params["min_tokens_to_keep"])]
    ),
    ("transformers", "top_h"): _truncated(lambda params: [TopH(h=params["top_h"])]),
    ("transformers", "log_softmax"): _log_softmax,
    ("transformers", "remove_invalid_values"): _truncated(
        lambda params: [RemoveInvalid(minus_infinity="lowest")]
    ),
    ("vllm", "top_k"): _truncated(lambda params: [TopK(k=params["top_k"], ties="keep")]),
    ("vllm", "top_p"): _truncated(lambda params: _p(params["top_p"])),
    ("vllm", "top_k_top_p"): _vllm_top_k_top_p,
    ("vllm", "min_p"): _truncated(lambda params: [MinP(min_p=params["min_p"])]),
    ("sglang", "top_k"): _weighted(lambda params: [TopK(k=params["top_k"])]),
    ("sglang", "top_p"): _weighted(lambda params: [TopP(p=params["top_p"], rule="above<=p")]),
    ("sglang", "min_p"): _weighted(lambda params: [MinP(min_p=params["min_p"])]),
    ("mlx-lm", "top_k"): _truncated(lambda params: [TopK(k=params["top_k"])]),
    ("mlx-lm", "top_p"): _truncated(lambda params: [TopP(p=params["top_p"], ties="keep")]),
    ("mlx-lm", "min_p"): _truncated(
        lambda params: [MinP(min_p=params["min_p"], min_keep=params["min_tokens_to_keep"])]
    ),
    ("mlx-lm", "xtc"): _truncated(
        lambda params: [
            Xtc(
                probability=params["xtc_probability"],
                threshold=params["xtc_threshold"],
                comparison=">",
                ties="keep",
                protected_ids=tuple(params["xtc_special_tokens"]),
            )
        ]
    ),
}
"""By engine and operation: reproduces a vector, or fails."""

EXCUSED: dict[str, str] = {
    "llama.cpp/temp_ext/0017": "the engine divides by the entropy that all candidates could have, "
    "those at -inf too; here a forbidden token is none",
    "llama.cpp/xtc/0000": "with a threshold of 0 the engine takes a token at -inf for a top choice "
    "and keeps it alone, so that nothing can be drawn",
    "sglang/top_p/0023": "probabilities 1/2, 1/4, 1/8 are exact in the engine's float32 alone; "
    "those of the float32 logits sum to 0.875 + 2e-9, and p is 0.875",
}
"""Vectors that are not reproduced, and why."""
