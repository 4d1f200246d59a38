"""Contexts: each turns a prompt into the ids that the model is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from genkit.components.base import Context
from genkit.errors import InputError
from genkit.text.tokenizer import Tokenizer

__all__ = ["Chat", "Text"]


class Text(Context):
    """The prompt as it is: the model goes on with the text."""

    type: Literal["text"] = "text"

    add_bos: bool | Literal["auto"] = Field(
        "auto", description="begin with the begin token; auto: as the tokenizer does it"
    )

    def encode(self, prompt: Any, tokenizer: Tokenizer) -> list[int]:
        """The ids of a string.

        Raises:
            InputError: the prompt is no string, is empty, or there is no begin token to add.
        """
        if not isinstance(prompt, str):
            raise InputError(
                f"the context 'text' takes a string, found {type(prompt).__name__}; "
                "for a list of messages use `context: {type: chat}`"
            )
        _not_empty(prompt)
        if self.add_bos == "auto":
            return tokenizer.encode(prompt)
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        return self._begin(ids, tokenizer) if self.add_bos else ids

    @staticmethod
    def _begin(ids: list[int], tokenizer: Tokenizer) -> list[int]:
        bos = tokenizer.bos_token_id
        if bos is None:
            raise InputError("add_bos: this tokenizer has no begin token; say `add_bos: auto`")
        return ids if ids[:1] == [bos] else [bos, *ids]


class Chat(Context):
    """A conversation in the model's own chat template; the model answers.

    A string is one message of the user. What messages contain is encoded as text: a message cannot
    forge a turn by spelling the template's control tokens.
    """

    type: Literal["chat"] = "chat"

    system: str | None = Field(None, description="system message put before the conversation")
    continue_last: bool = Field(
        False, description="go on with the last message, the assistant's, instead of answering"
    )
    raw_special_tokens: bool = Field(
        False, description="let control tokens spelled in messages act as such"
    )

    def encode(self, prompt: Any, tokenizer: Tokenizer) -> list[int]:
        """The ids of a string or of a list of messages ``{"role": ..., "content": ...}``.

        Raises:
            InputError: the prompt is neither, is empty, or the template does not take it.
        """
        return tokenizer.encode_chat(
            self.messages(prompt),
            continue_last=self.continue_last,
            raw_special_tokens=self.raw_special_tokens,
        )

    def messages(self, prompt: Any) -> list[Mapping[str, Any]]:
        """The prompt as a list of messages, the system message in front."""
        if isinstance(prompt, str):
            _not_empty(prompt)
            prompt = [{"role": "user", "content": prompt}]
        if not isinstance(prompt, Sequence) or not all(isinstance(m, Mapping) for m in prompt):
            raise InputError(
                "the context 'chat' takes a string or a list of messages "
                f"{{'role': ..., 'content': ...}}, found {type(prompt).__name__}"
            )
        if not prompt:
            raise InputError("the conversation is empty; give at least one message")
        if self.system is None or prompt[0].get("role") == "system":
            return list(prompt)
        return [{"role": "system", "content": self.system}, *prompt]


def _not_empty(prompt: str) -> None:
    if not prompt:
        raise InputError(
            "the prompt is empty; to generate from the begin token alone, give its id as the prompt"
        )
