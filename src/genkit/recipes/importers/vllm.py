"""vLLM: `SamplingParams` and requests to its server, in the order of its V1 sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import (
    CONSTRAINT,
    OUTPUT,
    write_biases,
    write_penalties_of_answer,
    write_stop_strings,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said, as_text

_GREEDY, _COLDEST = 1e-5, 1e-2
"""Below the first temperature vLLM is greedy; what lies between them becomes the second."""

_MOST_BIAS = 100

_SERVER = "it is for a server"

ASIDE: Aside = {
    **requests.ASIDE,
    "use_beam_search": (False, "genkit has no beam search"),
    "length_penalty": (1.0, "genkit has no beam search"),
    "structured_outputs": (None, CONSTRAINT),
    "guided_json": (None, CONSTRAINT),
    "guided_regex": (None, CONSTRAINT),
    "guided_choice": (None, CONSTRAINT),
    "guided_grammar": (None, CONSTRAINT),
    "guided_decoding_backend": (None, CONSTRAINT),
    "thinking_token_budget": (-1, "genkit has no budget for thinking"),
    "watermarking": (False, "its mark is made while drawing, with noise of its own"),
    "truncate_prompt_tokens": (
        None,
        "prompts are cut to the model's context only, with `context.overflow: truncate_left`",
    ),
    "truncation_side": (None, "see `context.overflow: truncate_left`"),
    "add_special_tokens": (True, "it is `add_bos` of the context `text`"),
    "add_generation_prompt": (True, "the context `chat` always asks for an answer"),
    "continue_final_message": (False, "it is `continue_last` of the context `chat`"),
    "chat_template": (None, "the template is the tokenizer's own"),
    "chat_template_kwargs": (None, "the template is the tokenizer's own"),
    "prompt_logprobs": (None, "see `genkit score`"),
    "logprob_token_ids": (None, OUTPUT),
    "detokenize": (True, OUTPUT),
    "output_kind": (None, OUTPUT),
    "return_token_ids": (None, OUTPUT),
    "return_tokens_as_token_ids": (None, OUTPUT),
    "priority": (0, _SERVER),
    "request_id": (None, _SERVER),
    "cache_salt": (None, _SERVER),
    "vllm_xargs": (None, "it is for plugins of vLLM"),
    "extra_args": (None, "it is for plugins of vLLM"),
}


def write(given: Given, draft: Draft) -> None:
    """Masks and biases, penalties, temperature, min_p, top_k, top_p."""
    context = requests.write_context(given, draft, "text")
    temperature = given.number("temperature", default=1.0, least=0, most=2)
    least = given.whole("min_tokens", default=0, least=0)
    stop_ids = _stops(given, draft, least)
    _masks(given, draft, least, stop_ids)
    penalty = given.number("repetition_penalty", default=1.0, above=0)
    if penalty.value != 1:
        draft.processor("repetition_penalty", penalty=penalty, positive="reciprocal")
    write_penalties_of_answer(given, draft)
    filters = (
        given.number("min_p", default=0.0, least=0, most=1),
        given.whole("top_k", default=0, least=-1),
        given.number("top_p", default=1.0, above=0, most=1),
    )
    of_model = [temperature, penalty]
    if temperature.value < _GREEDY:
        given.leave_idle(filters, f"vLLM is greedy at a temperature below {_GREEDY:g}")
        draft.sampler("greedy", because=temperature)
    else:
        _truncation(given, draft, temperature, *filters)
        draft.sampler("categorical", because=temperature)
        of_model += filters
    _limits(given, draft, context)
    draft.seed(given.whole("seed"))
    switch = given.take("generation_config", default="auto", read=as_text)
    requests.leave_model_file(given, "vLLM's server", switch, "vllm", of_model)


def _stops(given: Given, draft: Draft, least: Said) -> Said:
    """The end token, stop ids and stop strings; returns the stop ids."""
    ignored = given.flag("ignore_eos")
    include = given.flag("include_stop_str_in_output")
    ids = given.ids("stop_token_ids")
    if not ignored.value:
        draft.stop("eos", because=ignored)
    requests.write_stop_ids(given, draft, ids, include)
    options = {"include": include} if include.value else {}
    options |= {"min_new_tokens": least} if least.value else {}
    strings = write_stop_strings(given, draft, **options)
    if any(a != b and a.endswith(b) for a in strings.value for b in strings.value):
        reason = (
            "of two that end with one letter vLLM takes the first of the list, genkit the longer"
        )
        given.leave(strings, reason)
    return ids


def _masks(given: Given, draft: Draft, least: Said, stop_ids: Said) -> None:
    allowed = given.ids("allowed_token_ids")
    if allowed.value:
        draft.processor("allowed_tokens", token_ids=allowed)
    words, sequences = given.texts("bad_words"), given.sequences("bad_words_token_ids")
    options = {"strings": words} if words.value else {}
    options |= {"token_ids": sequences} if sequences.value else {}
    if options:
        draft.processor("bad_words", scope="output", **options)
    if words.value:
        given.leave(
            words,
            "vLLM bans a word with a space before it only where that has as many tokens as the "
            "word alone; here it is banned in any case",
        )
    if least.value:
        ids = {"token_ids": stop_ids} if stop_ids.value else {}
        draft.processor("min_new_tokens", limit=least, if_none_left="allow", **ids)
    biases = write_biases(given, draft)
    if any(abs(float(bias)) > _MOST_BIAS for bias in dict(biases.value).values()):
        given.leave(biases, f"requests to vLLM's server are cut to {-_MOST_BIAS} to {_MOST_BIAS}")


def _truncation(
    given: Given, draft: Draft, temperature: Said, min_p: Said, top_k: Said, top_p: Said
) -> None:
    if temperature.value < _COLDEST:
        given.leave(temperature, f"vLLM takes {_COLDEST:g} for it")
        temperature = temperature.but(_COLDEST)
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)
    if min_p.value:
        draft.processor("min_p", min_p=min_p)
    if top_k.value > 0:
        draft.processor("top_k", k=top_k, ties="keep")
    if top_p.value < 1:
        draft.processor("top_p", p=top_p)


def _limits(given: Given, draft: Draft, context: Said) -> None:
    is_chat = context.name == "messages" and context.is_given
    limit = given.whole(
        "max_completion_tokens", "max_tokens", default=None if is_chat else 16, least=1
    )
    if limit.value is not None:
        draft.stop("max_new_tokens", limit=limit)
    pattern = given.take("repetition_detection", read=_pattern)
    if pattern.value:
        draft.stop("repeating", **{name: pattern.but(n) for name, n in pattern.value.items()})


_PATTERN = {"max_pattern_size", "min_pattern_size", "min_count"}


def _pattern(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value.keys() <= _PATTERN:
        raise ValueError(f"an object with {', '.join(sorted(_PATTERN))} is expected")
    if not value.get("max_pattern_size"):
        return {}
    return {
        "max_period": value["max_pattern_size"],
        "times": value.get("min_count", 0),
        "min_period": value.get("min_pattern_size") or 1,
    }
