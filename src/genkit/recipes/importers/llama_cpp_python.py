"""llama-cpp-python: the arguments of `Llama.create_completion`."""

from __future__ import annotations

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import (
    CONSTRAINT,
    write_biases,
    write_end,
    write_penalties_at_once,
    write_stop_strings,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said
from genkit.recipes.importers.llama_cpp import mirostat_options, write_mirostat

ASIDE: Aside = {
    **requests.ASIDE,
    "grammar": (None, CONSTRAINT),
    "tfs_z": (1.0, "llama-cpp-python does not use it any more"),
    "logits_processor": (None, "it is code; a plugin can bring such a part"),
    "stopping_criteria": (None, "it is code; a plugin can bring such a part"),
}


def write(given: Given, draft: Draft) -> None:
    """Bias, penalties; then greedy, a plain draw, mirostat, or the filters and the temperature."""
    requests.write_context(given, draft, "text")
    write_biases(given, draft)
    _penalties(given, draft)
    temperature = given.number("temperature", "temp", default=0.8)
    version = given.whole("mirostat_mode", default=0, least=0, most=2)
    filters = (
        given.whole("top_k", default=40),
        given.number("typical_p", default=1.0),
        given.number("top_p", default=0.95),
        given.number("min_p", default=0.05),
    )
    mirostat = mirostat_options(given)
    if temperature.value <= 0:
        is_greedy = temperature.value == 0
        how = "takes the most probable token" if is_greedy else "draws from all tokens"
        given.leave_idle((*filters, *mirostat), f"at this temperature llama-cpp-python {how}")
        draft.sampler("greedy" if is_greedy else "categorical", because=temperature)
    elif version.value:
        reason = f"mirostat_mode={version.value} replaces the filters and the temperature"
        given.leave_idle(filters, reason)
        if temperature.is_given:
            given.leave(temperature, reason)
        write_mirostat(draft, version, *mirostat)
    else:
        given.leave_idle(mirostat, "mirostat_mode is 0")
        _filters(draft, temperature, *filters)
        draft.sampler("categorical", because=temperature)
    _ends(given, draft)


def _penalties(given: Given, draft: Draft) -> None:
    write_penalties_at_once(
        draft,
        window=given.whole("last_n_tokens_size", default=64, least=0),
        repeat=given.number("repeat_penalty", default=1.0, above=0),
        frequency=given.number("frequency_penalty", default=0.0),
        presence=given.number("presence_penalty", default=0.0),
    )


def _filters(draft: Draft, temperature: Said, k: Said, typical: Said, p: Said, min_p: Said) -> None:
    if k.value > 0:
        draft.processor("top_k", k=k, ties="by_id")
    if typical.value < 1:
        draft.processor("typical_p", p=typical, rule="above<=p")
    if p.value < 1:
        draft.processor("top_p", p=p.but(max(p.value, 0.0)))
    if min_p.value > 0:
        draft.processor("min_p", min_p=min_p)
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)


def _ends(given: Given, draft: Draft) -> None:
    write_end(given, draft)
    write_stop_strings(given, draft, "the first of the list")
    limit = given.whole("max_tokens", default=16)
    if limit.value > 0:
        draft.stop("max_new_tokens", limit=limit)
    draft.seed(given.whole("seed"))
