"""The laws of contexts."""

from __future__ import annotations

import copy
from typing import Any

from genkit.components.base import Component
from genkit.errors import FAILURES, ContextLengthError
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.laws.admission import refuse_class
from genkit.testing.laws.law_broken import LawBroken
from genkit.text.tokenizer import Tokenizer

__all__ = ["CONTEXT_LAWS", "check_context"]

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
    tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
    before, spec = copy.deepcopy(prompt), _dump(part)
    ids = _encode(part, prompt, tokenizer)
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        raise LawBroken("encodes to ids", part, f"{prompt!r} became {ids!r}")
    outside = [token_id for token_id in ids if not 0 <= token_id < tokenizer.vocab_size]
    if outside:
        raise LawBroken("encodes to ids", part, f"{outside[0]} is no id of the tokenizer")
    again = _encode(part, prompt, tokenizer)
    if again != ids:
        raise LawBroken("gives the same again", part, f"first {ids}, then {again}")
    _check_fit(part, ids, tokenizer)
    if prompt != before:
        raise LawBroken("leaves what it is given", part, f"{before!r} became {prompt!r}")
    if _dump(part) != spec:
        raise LawBroken("leaves its spec", part, f"{spec!r} became {_dump(part)!r}")


def _encode(part: Any, prompt: Any, tokenizer: Tokenizer) -> Any:
    try:
        return part.encode(prompt, tokenizer)
    except FAILURES as error:
        raise _raised(part, error, "encode") from error


def _raised(part: Any, error: BaseException, function: str) -> LawBroken:
    words = f"raised {type(error).__name__}: {error} in `{function}`"
    return LawBroken("runs without an error", part, words)


def _check_fit(part: Any, ids: list[int], tokenizer: Tokenizer) -> None:
    given = list(ids)
    for longest in (None, len(ids), *range(len(ids) - 1, 0, -1)):
        try:
            fitted = part.fit(ids, longest, "a limit", tokenizer)
        except ContextLengthError:
            if longest is not None and longest < len(given):
                continue
            raise LawBroken("keeps what fits", part, f"refused {len(given)} ids") from None
        except FAILURES as error:
            raise _raised(part, error, "fit") from error
        if ids != given:
            raise LawBroken("leaves what it is given", part, f"`fit` changed {given} to {ids}")
        if longest is None or longest >= len(given):
            if fitted != given:
                raise LawBroken("keeps what fits", part, f"{given} fits and became {fitted}")
        elif not 0 < len(fitted) <= longest:
            raise LawBroken("keeps what fits", part, f"{len(fitted)} ids where {longest} fit")


def _dump(part: Any) -> Any:
    return part.model_dump() if isinstance(part, Component) else None
