"""The laws of contexts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from genkit.components.base import Component
from genkit.errors import FAILURES, ContextLengthError
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.laws.admission import refuse_class
from genkit.testing.laws.law_broken import LawBroken
from genkit.text.tokenizer import Tokenizer

__all__ = ["CONTEXT_LAWS", "broken_by_context", "check_context"]

CONTEXT_LAWS = {
    "encodes to ids": "a prompt becomes a list of ids of the tokenizer, and not an empty one",
    "gives the same again": "the same prompt gives the same ids",
    "keeps what fits": "ids that fit stay, and others are refused or cut to what fits",
    "leaves what it is given": "neither the prompt nor the ids are changed",
    "leaves its spec": "the context itself is the same afterwards",
    "runs without an error": "it takes the prompt, and makes it fit, without an error",
}
"""Every law of a context, by its name, and what it says."""


def check_context(part: Any, prompt: Any = "abc de", tokenizer: Tokenizer | None = None) -> None:
    """Hold a context to what a pipeline asks of it.

    It gives ids of the tokenizer, the same each time, and changes neither the prompt nor itself.
    Ids that do not fit are refused or cut to what fits.

    Args:
        part: a context.
        prompt: one that it takes.
        tokenizer: by default `ByteTokenizer`.

    Raises:
        LawBroken: it does something else.
        TypeError: `part` is a class.
    """
    refuse_class(part)
    for broken in broken_by_context(part, prompt, tokenizer):
        raise broken


def broken_by_context(
    part: Any, prompt: Any = "abc de", tokenizer: Tokenizer | None = None
) -> Iterator[LawBroken]:
    """Each time that a context breaks a law; what raises, and what gives no ids, ends it.

    Args:
        part, prompt, tokenizer: as for `check_context`.
    """
    tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
    before, spec = copy.deepcopy(prompt), _dump(part)
    function = "encode"
    try:
        ids = part.encode(prompt, tokenizer)
        if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
            yield LawBroken("encodes to ids", part, f"{prompt!r} became {ids!r}")
            return
        outside = [token_id for token_id in ids if not 0 <= token_id < tokenizer.vocab_size]
        if outside:
            yield LawBroken("encodes to ids", part, f"{outside[0]} is no id of the tokenizer")
        again = part.encode(prompt, tokenizer)
        if again != ids:
            yield LawBroken("gives the same again", part, f"first {ids}, then {again}")
        function = "fit"
        yield from _broken_by_fit(part, ids, tokenizer)
    except FAILURES as error:
        words = f"raised {type(error).__name__}: {error} in `{function}`"
        yield LawBroken("runs without an error", part, words)
    if prompt != before:
        yield LawBroken("leaves what it is given", part, f"{before!r} became {prompt!r}")
    if _dump(part) != spec:
        yield LawBroken("leaves its spec", part, f"{spec!r} became {_dump(part)!r}")


def _broken_by_fit(part: Any, given: list[int], tokenizer: Tokenizer) -> Iterator[LawBroken]:
    for longest in (None, *range(len(given), 0, -1)):
        ids = list(given)
        too_long = longest is not None and longest < len(given)
        try:
            fitted = part.fit(ids, longest, "a limit", tokenizer)
        except ContextLengthError:
            if not too_long:
                yield LawBroken("keeps what fits", part, f"refused {len(given)} ids")
            continue
        if ids != given:
            yield LawBroken("leaves what it is given", part, f"`fit` changed {given} to {ids}")
        elif not too_long and fitted != given:
            yield LawBroken("keeps what fits", part, f"{given} fits and became {fitted}")
        elif too_long and not 0 < len(fitted) <= (longest or 0):
            yield LawBroken("keeps what fits", part, f"{len(fitted)} ids where {longest} fit")
        elif not all(type(i) is int and 0 <= i < tokenizer.vocab_size for i in fitted):
            yield LawBroken("keeps what fits", part, f"{given} was cut to {fitted}")


def _dump(part: Any) -> Any:
    return part.model_dump() if isinstance(part, Component) else None
