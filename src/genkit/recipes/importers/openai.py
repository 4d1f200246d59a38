"""OpenAI: requests for chat completions and completions.

The service does not say in which order it works; that of vLLM, which follows its interface, is
taken.
"""

from __future__ import annotations

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import (
    write_biases,
    write_end,
    write_penalties_of_answer,
    write_stop_strings,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Given

ASIDE = requests.ASIDE

_MOST_STRINGS = 4


def write(given: Given, draft: Draft) -> None:
    """Bias, penalties on the answer, temperature, top_p."""
    context = requests.write_context(given, draft, "chat")
    write_biases(given, draft, most=100)
    write_penalties_of_answer(given, draft)
    temperature = given.number("temperature", default=1.0, least=0, most=2)
    top_p = given.number("top_p", default=1.0, least=0, most=1)
    if temperature.value == 0:
        given.leave_idle([top_p], "at temperature 0 the most probable token is taken")
        draft.sampler("greedy", because=temperature)
    else:
        if temperature.value != 1:
            draft.processor("temperature", temperature=temperature)
        if top_p.value < 1:
            draft.processor("top_p", p=top_p)
        draft.sampler("categorical", because=temperature)
    write_end(given, draft)
    strings = write_stop_strings(given, draft)
    if len(strings.value) > _MOST_STRINGS:
        given.refuse(strings, f"openai wants at most {_MOST_STRINGS} strings")
    default = 16 if context.name == "prompt" else None  # legacy completions have a limit
    limit = given.whole("max_completion_tokens", "max_tokens", default=default, least=1)
    if limit.value is not None:
        draft.stop("max_new_tokens", limit=limit)
    draft.seed(given.whole("seed"))
