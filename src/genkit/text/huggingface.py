"""Tokenizers of transformers behind genkit's contract."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genkit.errors import InputError
from genkit.text.chat_template import ChatTemplate

# Literal spellings of special tokens travel through a chat template as characters of the last
# private-use plane: templates trim, compare and join text, and leave such characters alone.
_FIRST_MARK = 0x100000
_NUM_MARKS = 0xFFFD
_MARKS = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_FIRST_MARK + _NUM_MARKS)}]")


class HuggingFaceTokenizer:
    """A tokenizer of transformers; see `genkit.text.tokenizer.Tokenizer`.

    Args:
        inner: the tokenizer. It is not changed, and calls leave no state in it.

    Attributes:
        inner: that tokenizer, for whoever needs more of it than the contract has.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.vocab_size = _num_ids(inner)
        self.bos_token_id: int | None = inner.bos_token_id
        self.eos_token_id: int | None = inner.eos_token_id
        self._special = _special_tokens(inner)
        self.special_token_ids = frozenset(self._special.values())

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text.

        With `add_special_tokens` also those that the model expects around it; a text that spells
        the begin token itself does not get a second one.

        Raises:
            InputError: the text has half a surrogate pair, which is no character.
        """
        _whole(text)
        ids: list[int] = self.inner.encode(text, add_special_tokens=add_special_tokens)
        doubled = self.bos_token_id is not None and ids[:2] == [self.bos_token_id] * 2
        return ids[1:] if add_special_tokens and doubled else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some ids. Special ids and ids that the tokenizer lacks give none.

        Nothing is cleaned up: blanks before punctuation stay.
        """
        return self._decode([i for i in token_ids if i not in self.special_token_ids])

    def token_text(self, token_id: int) -> str:
        """One id for a person: special ids by name, half characters as the vocabulary has them."""
        token = self.inner.convert_ids_to_tokens(token_id) if token_id < self.vocab_size else None
        if token is None:
            return f"<id {token_id}>"
        if token_id in self.special_token_ids:
            return str(token)
        anchor, before = self._anchor
        text = self._decode([anchor, token_id])[len(before) :]
        return text if text and "\ufffd" not in text else str(token)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        continue_last: bool = False,
        raw_special_tokens: bool = False,
    ) -> list[int]:
        """The ids of a conversation in the model's own chat template.

        The template writes all special tokens, the begin token among them; none is added. Where a
        message spells one, the spelling is encoded as text unless `raw_special_tokens`; everywhere
        else the ids are those that the rendered text has as a whole.

        Raises:
            InputError: a message has no role or content or no whole characters, there is no
                template, or it refuses or rewrites the messages.
        """
        checked = [_checked(i, message) for i, message in enumerate(messages)]
        change = _whole if raw_special_tokens else self._mark
        checked = [_changed(message, change) for message in checked]
        text = self._template.render(checked, continue_last=continue_last)
        return self._encode_marked(text)

    @functools.cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate(self.inner, self._unmarked)

    def _mark(self, text: str) -> str:
        """The text with a mark in place of every special token that it spells."""
        _whole(text)
        if _MARKS.search(text):
            raise InputError("a message holds characters U+100000 and above, which are reserved")
        return self._spellings.sub(lambda match: self._mark_of[match[0]], text)

    @functools.cached_property
    def _mark_of(self) -> dict[str, str]:
        names = sorted(self._special)[:_NUM_MARKS]
        return {name: chr(_FIRST_MARK + i) for i, name in enumerate(names)}

    @functools.cached_property
    def _spellings(self) -> re.Pattern[str]:
        longest_first = sorted(filter(None, self._special), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @functools.cached_property
    def _spelling_of(self) -> dict[str, str]:
        return {mark: name for name, mark in self._mark_of.items()}

    def _unmarked(self, text: str) -> str:
        return _MARKS.sub(lambda match: self._spelling_of.get(match[0], match[0]), text)

    def _encode_marked(self, text: str) -> list[int]:
        """The ids of a rendered conversation, every mark encoded as the text it stands for."""
        ids: list[int] = []
        end = 0
        for match in _MARKS.finditer(text):
            ids += self._encode_piece(text[end : match.start()], first=end == 0)
            ids += self._encode_literal(self._spelling_of[match[0]], first=match.start() == 0)
            end = match.end()
        return ids + self._encode_piece(text[end:], first=end == 0)

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        def encode(piece: str) -> list[int]:
            return list(self.inner.encode(piece, add_special_tokens=False))

        return encode(text) if first else _without_prefix(encode, text)

    def _encode_literal(self, text: str, *, first: bool) -> list[int]:
        ids = self._encode_text(text) if first else _without_prefix(self._encode_text, text)
        if self.special_token_ids.intersection(ids):
            raise InputError(
                f"this tokenizer cannot encode {text!r} as text; take it out of the message, or "
                "say `raw_special_tokens: true` if it is meant to act as a control token"
            )
        return ids

    def _encode_text(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are plain characters."""
        if self._plain is None:
            return list(
                self.inner.encode(text, add_special_tokens=False, split_special_tokens=True)
            )
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    @functools.cached_property
    def _plain(self) -> Any:
        """A copy of the tokenizer underneath that knows no special tokens; None if there is none.

        A copy, since the switch is a property of the whole object, which threads share.
        """
        backend = getattr(self.inner, "backend_tokenizer", None)
        if backend is None:
            return None
        plain = type(backend).from_str(backend.to_str())
        plain.no_truncation()
        plain.no_padding()
        plain.encode_special_tokens = True
        return plain

    @functools.cached_property
    def _anchor(self) -> tuple[int, str]:
        """An id with plain text, to put before one whose leading blank is to be seen; its text."""
        return next(
            (i, text) for i in self._encode_text("a") if (text := self._decode([i])).strip()
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        known = [i for i in token_ids if i < self.vocab_size]
        return str(
            self.inner.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )


def _checked(i: int, message: Any) -> dict[str, Any]:
    for key in ("role", "content"):
        value = message.get(key) if isinstance(message, Mapping) else None
        if not isinstance(value, str):
            raise InputError(
                f"message {i}: {key!r} must be a string, found {value!r}; a message is a mapping "
                "{'role': 'user', 'content': '...'}"
            )
    return dict(message)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """A part of a message with every string in it changed: a template may write any of them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_changed(key, change): _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_changed(inner, change) for inner in value]
    return value


def _whole(text: str) -> str:
    """The text, if all of it is characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text holds {text[error.start]!r} at place {error.start}, half of a surrogate pair, "
            "which is no character"
        ) from None
    return text


def _special_tokens(inner: Any) -> dict[str, int]:
    """Names and ids of the tokens that control the model."""
    decoder = inner.added_tokens_decoder.items()
    added = {str(token): int(i) for i, token in decoder if getattr(token, "special", False)}
    named = zip(inner.all_special_tokens, inner.all_special_ids, strict=True)
    return added | {str(name): int(i) for name, i in named if i is not None}


def _num_ids(inner: Any) -> int:
    """One more than the largest id: some tokenizers leave gaps, or repeat a token."""
    return max(len(inner), max(inner.get_vocab().values(), default=-1) + 1)


def _without_prefix(encode: Any, text: str) -> list[int]:
    """The ids of a text that goes on from earlier text.

    Tokenizers of the sentencepiece kind put a blank before the beginning. A line break in front
    takes it, and goes again with it.
    """
    if not text:
        return []
    front = encode("\n")
    ids: list[int] = encode("\n" + text)
    return ids[len(front) :] if front and ids[: len(front)] == front else list(encode(text))
