"""mlx-lm: `generate_step`, `make_sampler` and `make_logits_processors`."""

from __future__ import annotations

import math

from genkit.recipes.importers.common import write_biases, write_end
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said

_CACHE = "caches have other names here; see `genkit parts cache_manager`"

ASIDE: Aside = {
    "prompt": (None, "a recipe has no prompt; give it when you generate"),
    "verbose": (False, "it changes nothing"),
    "num_draft_tokens": (None, "genkit has no speculative decoding"),
    "draft_model": (None, "genkit has no speculative decoding"),
    "max_kv_size": (None, _CACHE),
    "kv_bits": (None, _CACHE),
    "kv_group_size": (64, _CACHE),
    "quantized_kv_start": (None, _CACHE),
    "prefill_step_size": (None, "it is `prefill_chunk` of the backend"),
    "adapter_path": (None, "genkit loads no adapters"),
}

_DRAWING = (
    "top_p",
    "min_p",
    "min_tokens_to_keep",
    "xtc_probability",
    "xtc_threshold",
    "xtc_special_tokens",
    "top_k",
)


def write(given: Given, draft: Draft) -> None:
    """Bias, penalties, then on log-probabilities top_p, min_p, XTC, top_k, and temperature last."""
    write_biases(given, draft)
    for name, neutral in (
        ("repetition_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
    ):
        context = name.replace("penalty", "context_size")
        window = given.whole(context, default=20, least=0)
        penalty = given.number(name, default=neutral, least=0 if neutral else -math.inf)
        # 0 is off as well: mlx-lm asks whether there is a penalty at all.
        if penalty.value not in (0, neutral):
            draft.processor(name, penalty=penalty, scope="all", window=window)
    temperature = given.number("temp", "temperature", default=0.0, least=0)
    if temperature.value == 0:
        reason = "mlx-lm takes the most probable token at temperature 0"
        given.leave_idle(_DRAWING, reason)
        draft.sampler("greedy", because=temperature)
    else:
        _truncation(given, draft, temperature)
        draft.sampler("categorical", because=temperature)
    write_end(given, draft)
    draft.stop("max_new_tokens", limit=given.whole("max_tokens", default=256, least=1))
    draft.seed(given.whole("seed"))


def _truncation(given: Given, draft: Draft, temperature: Said) -> None:
    top_p = given.number("top_p", default=1.0)
    if 0 < top_p.value < 1:
        draft.processor("top_p", p=top_p, ties="keep")
    min_p = given.number("min_p", default=0.0, least=0, most=1)
    at_least = given.whole("min_tokens_to_keep", default=1, least=1)
    if min_p.value:
        keep = {"min_keep": at_least} if at_least.value > 1 else {}
        draft.processor("min_p", min_p=min_p, **keep)
    _xtc(given, draft)
    top_k = given.whole("top_k", default=0)
    if top_k.value > 0:
        draft.processor("top_k", k=top_k, ties="by_id")
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)


def _xtc(given: Given, draft: Draft) -> None:
    probability = given.number("xtc_probability", default=0.0, least=0, most=1)
    threshold = given.number("xtc_threshold", default=0.1, least=0, most=0.5)
    special = given.ids("xtc_special_tokens")
    if not probability.value:
        return
    draft.processor(
        "xtc",
        probability=probability,
        threshold=threshold,
        comparison=">",
        ties="keep",
        protected_ids=special,
    )
    if not special.is_given:
        given.leave(
            special,
            "the programs of mlx-lm spare newlines and end tokens; name their ids here to do so",
        )
