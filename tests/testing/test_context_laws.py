from typing import Literal

import pytest

from genkit.components.base import Context
from genkit.components.contexts import Chat, Text
from genkit.kit import Kit
from genkit.testing import ByteTokenizer, LawBroken, check_context

BUILT_IN = [Text(), Text(overflow="truncate_left"), Chat(system="Be brief."), Text(add_bos=True)]


def test_every_registered_context_is_checked() -> None:
    registered = {entry.name for entry in Kit(entry_points=False).parts("context")}
    assert {part.type for part in BUILT_IN} == registered


@pytest.mark.parametrize("part", BUILT_IN, ids=repr)
@pytest.mark.parametrize("add_bos", [False, True])
def test_built_in_contexts_keep_the_laws(part: Context, add_bos: bool) -> None:
    check_context(part, tokenizer=ByteTokenizer(add_bos=add_bos))


class Odd(Context):
    """The base of some that break a law."""

    type: Literal["odd"] = "odd"

    def encode(self, prompt, tokenizer):
        return [1, 2, 3]


class Empty(Odd):
    def encode(self, prompt, tokenizer):
        return []


class Outside(Odd):
    def encode(self, prompt, tokenizer):
        return [tokenizer.vocab_size]


class Pops(Odd):
    def encode(self, prompt, tokenizer):
        return [len(prompt.pop())]


class Grows(Odd):
    def encode(self, prompt, tokenizer):
        prompt.append("x")
        return [len(prompt)]


class Raises(Odd):
    def encode(self, prompt, tokenizer):
        raise KeyError("oops")


class RaisesWhereItCuts(Odd):
    def fit(self, ids, longest, limits, tokenizer=None):
        raise KeyError("oops")


class CutsInPlace(Odd):
    def fit(self, ids, longest, limits, tokenizer=None):
        del ids[longest:]
        return ids


class NeverCuts(Odd):
    def fit(self, ids, longest, limits, tokenizer=None):
        return ids


class AlwaysCuts(Odd):
    def fit(self, ids, longest, limits, tokenizer=None):
        return ids[-1:]


class CutsToAnything(Odd):
    def fit(self, ids, longest, limits, tokenizer=None):
        return ids if longest is None or len(ids) <= longest else [99_999]


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        (Empty(), "encodes to ids"),
        (Outside(), "encodes to ids"),
        (Pops(), "leaves what it is given"),
        (Grows(), "gives the same again"),
        (Raises(), "runs without an error"),
        (RaisesWhereItCuts(), "runs without an error"),
        (CutsInPlace(), "leaves what it is given"),
        (NeverCuts(), "keeps what fits"),
        (AlwaysCuts(), "keeps what fits"),
        (CutsToAnything(), "keeps what fits"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_context_is_caught_by_its_law(part: Context, broken: str) -> None:
    with pytest.raises(LawBroken) as caught:
        check_context(part, prompt=["ab", "ab", "ab"])
    assert caught.value.law == broken


def test_a_class_is_refused_before_any_law() -> None:
    with pytest.raises(TypeError, match=r"^Text is a class; give an object: Text\(\)"):
        check_context(Text)
