"""What several engines have in common."""

from __future__ import annotations

import math
from typing import Any

from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Given, Said

CONSTRAINT = "see the processor `structured` of the plugin lm-genkit-structured"
OUTPUT = "it is about what is returned besides the answer"


def write_biases(given: Given, draft: Draft, most: float = math.inf) -> Said:
    """What is added to the logits of single tokens; returns it."""
    biases = given.biases(most)
    if biases.value:
        draft.processor("token_bias", biases=biases)
    return biases


def write_penalties_of_answer(given: Given, draft: Draft) -> None:
    """The two additive penalties of OpenAI's interface, on the tokens of the answer."""
    for name in ("frequency_penalty", "presence_penalty"):
        amount = given.number(name, default=0.0, least=-2, most=2)
        if amount.value:
            draft.processor(name, penalty=amount, scope="output")


def write_penalties_at_once(
    draft: Draft, *, window: Said, repeat: Said, frequency: Said, presence: Said
) -> None:
    """The penalties of llama.cpp: the additive ones are subtracted together."""
    scope: dict[str, Any] = {"scope": "all", "window": window}
    if repeat.value != 1:
        draft.processor("repetition_penalty", penalty=repeat, **scope)
    if frequency.value:
        both = {"presence": presence} if presence.value else {}
        draft.processor("frequency_penalty", penalty=frequency, **both, **scope)
    elif presence.value:
        draft.processor("presence_penalty", penalty=presence, **scope)


def write_repetition(given: Given, draft: Draft) -> None:
    """What forbids repetition in transformers and those that take after it."""
    penalty = given.number("repetition_penalty", default=1.0, above=0)
    if penalty.value != 1:
        draft.processor("repetition_penalty", penalty=penalty)
    size = given.whole("no_repeat_ngram_size", default=0)
    if size.value > 0:
        draft.processor("no_repeat_ngram", n=size)


def coldest(is_drawn: Said) -> dict[str, float]:
    """The range of a temperature; 0 is what people write where nothing is drawn."""
    return {"above": 0} if is_drawn.value else {"least": 0}


def write_end(given: Given, draft: Draft) -> None:
    """The model's own end tokens, which the engine always looks at."""
    draft.stop("eos", because=given.take("eos", default=True, read=bool))


def write_stop_strings(given: Given, draft: Draft, chosen: str = "", /, **options: Any) -> Said:
    """Strings that end the answer and are cut off; returns them.

    Args:
        given: the settings.
        draft: the recipe.
        chosen: which string the engine takes where one token completes several, if it is another.
        options: more of the criterion.
    """
    strings = given.texts("stop")
    if strings.value:
        draft.stop("stop_strings", strings=strings, **options)
    if chosen and len(strings.value) > 1:
        given.leave(strings, f"where one token completes several, {given.engine} takes {chosen}")
    return strings
