"""SGLang: sampling parameters and requests to its server, with its torch sampling backend."""

from __future__ import annotations

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import (
    CONSTRAINT,
    write_biases,
    write_penalties_of_answer,
    write_stop_strings,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said, as_text

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
    stop_ids = _stops(given, draft)
    penalty = _penalties(given, draft, stop_ids)
    write_biases(given, draft)
    filters = (
        given.number("top_p", default=1.0, above=0, most=1),
        given.whole("top_k", default=-1, least=-1),
        given.number("min_p", default=0.0, least=0, most=1),
    )
    of_model = [temperature, penalty]
    if temperature.value < _GREEDY:
        given.leave_idle(filters, f"SGLang is greedy at a temperature below {_GREEDY:g}")
        draft.sampler("greedy", because=temperature)
    else:
        _truncation(draft, temperature, *filters)
        draft.sampler("categorical", because=temperature)
        of_model += filters
    limit = given.whole(
        "max_new_tokens", "max_completion_tokens", "max_tokens", default=128, least=1
    )
    draft.stop("max_new_tokens", limit=limit)
    draft.seed(given.whole("sampling_seed", "seed"))
    switch = given.take("sampling_defaults", default="model", read=as_text)
    requests.leave_model_file(given, "SGLang's OpenAI interface", switch, "openai", of_model)


def _stops(given: Given, draft: Draft) -> Said:
    """Strings and patterns, which SGLang looks at before tokens; returns the stop ids."""
    include = given.flag("no_stop_trim")
    options = {"include": include} if include.value else {}
    write_stop_strings(given, draft, "the first of the list", **options)
    patterns = given.texts("stop_regex")
    if patterns.value:
        draft.stop("stop_regex", patterns=patterns, **options)
        reason = "SGLang looks for it after whole tokens; here the last letter of a match counts"
        if not include.value:
            reason += ", and it is cut off; there only if it reads as the pattern does"
        given.leave(patterns, reason)
    ignored, ids = given.flag("ignore_eos"), given.ids("stop_token_ids")
    if not ignored.value:
        draft.stop("eos", because=ignored)
        requests.write_stop_ids(given, draft, ids, include)
    elif ids.value:
        given.leave(ids, "with ignore_eos SGLang looks at no stop ids either")
    return ids


def _penalties(given: Given, draft: Draft, stop_ids: Said) -> Said:
    """The penalties; returns the multiplicative one."""
    write_penalties_of_answer(given, draft)
    least = given.whole("min_new_tokens", "min_tokens", default=0, least=0)
    if least.value:
        ids = {"token_ids": stop_ids} if stop_ids.value else {}
        draft.processor("min_new_tokens", limit=least, **ids)
    penalty = given.number("repetition_penalty", default=1.0, above=0, most=2)
    if penalty.value != 1:
        draft.processor("repetition_penalty", penalty=penalty, scope="output")
    return penalty


def _truncation(draft: Draft, temperature: Said, top_p: Said, top_k: Said, min_p: Said) -> None:
    """Both conditions on one softmax: the mass first, which top_k would otherwise change."""
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)
    if top_p.value < 1:
        draft.processor("top_p", p=top_p, rule="above<=p")
    if top_k.value > 0:
        draft.processor("top_k", k=top_k, ties="by_id")
    if min_p.value:
        draft.processor("min_p", min_p=min_p)
