"""SGLang: sampling parameters and requests to its server, with its torch sampling backend."""

from __future__ import annotations

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import CONSTRAINT, write_biases, write_penalties_of_answer
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said

_GREEDY = 1e-6
"""Below this temperature SGLang is greedy."""


ASIDE: Aside = {
    **requests.ASIDE,
    "json_schema": (None, CONSTRAINT),
    "regex": (None, CONSTRAINT),
    "ebnf": (None, CONSTRAINT),
    "structural_tag": (None, CONSTRAINT),
    "custom_logit_processor": (None, "it is code for SGLang; a plugin can bring such a part"),
    "custom_params": (None, "it is for a custom logit processor"),
    "return_logprob": (False, "say --logprobs when you generate"),
    "top_logprobs_num": (0, "say --logprobs when you generate"),
    "logprob_start_len": (-1, "say --logprobs when you generate"),
    "stream_interval": (None, "it is about what is returned besides the answer"),
    "input_ids": (None, "a recipe has no prompt; give it when you generate"),
}


def write(given: Given, draft: Draft) -> None:
    """Penalties, additive ones first, bias, temperature, joint top_k and top_p, min_p."""
    requests.write_context(given, draft, "text")
    temperature = given.number("temperature", default=1.0, least=0)
    untrimmed = given.flag("no_stop_trim")
    stop_ids = requests.write_stops(given, draft, include=untrimmed)
    _penalties(given, draft, stop_ids)
    write_biases(given, draft)
    if temperature.value < _GREEDY:
        reason = f"SGLang is greedy at a temperature below {_GREEDY:g}"
        given.leave_idle(("top_p", "top_k", "min_p"), reason)
        draft.sampler("greedy", because=temperature)
    else:
        _truncation(given, draft, temperature)
        draft.sampler("categorical", because=temperature)
    patterns = given.texts("stop_regex")
    if patterns.value:
        options = {"include": untrimmed} if untrimmed.value else {}
        draft.stop("stop_regex", patterns=patterns, **options)
    limit = given.whole(
        "max_new_tokens", "max_completion_tokens", "max_tokens", default=128, least=1
    )
    draft.stop("max_new_tokens", limit=limit)
    draft.seed(given.whole("sampling_seed", "seed"))


def _penalties(given: Given, draft: Draft, stop_ids: Said) -> None:
    write_penalties_of_answer(given, draft)
    least = given.whole("min_new_tokens", "min_tokens", default=0, least=0)
    if least.value:
        ids = {"token_ids": stop_ids} if stop_ids.value else {}
        draft.processor("min_new_tokens", limit=least, **ids)
    penalty = given.number("repetition_penalty", default=1.0, above=0, most=2)
    if penalty.value != 1:
        draft.processor("repetition_penalty", penalty=penalty, scope="output")


def _truncation(given: Given, draft: Draft, temperature: Said) -> None:
    """Both conditions on one softmax: the mass first, which top_k would otherwise change."""
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)
    top_p = given.number("top_p", default=1.0, above=0, most=1)
    if top_p.value < 1:
        draft.processor("top_p", p=top_p, rule="above<=p")
    top_k = given.whole("top_k", default=-1, least=-1)
    if top_k.value > 0:
        draft.processor("top_k", k=top_k, ties="by_id")
    min_p = given.number("min_p", default=0.0, least=0, most=1)
    if min_p.value:
        draft.processor("min_p", min_p=min_p)
