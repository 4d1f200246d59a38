"""Renders a conversation in a model's own chat template, and says what the template did to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genkit.errors import InputError

_Messages = Sequence[Mapping[str, Any]]

_END = "\U0010fffd"  # a private-use character: where the message that is gone on with ends


class ChatTemplate:
    """The chat template of a tokenizer of transformers, which renders it in a sandbox.

    Args:
        inner: the tokenizer.
        shown: turns rendered text into what a person should read in messages.
    """

    def __init__(self, inner: Any, shown: Callable[[str], str] = str) -> None:
        self._inner = inner
        self._shown = shown
        if not inner.chat_template:
            raise InputError(
                "this model has no chat template, so it takes no conversations; use "
                "`context: {type: text}` and write the prompt as the model expects it"
            )

    def render(self, messages: _Messages, *, continue_last: bool) -> str:
        """The conversation as text, ready for the assistant's answer or the rest of it.

        Raises:
            InputError: the template refuses the messages, or rewrites the one to go on with.
        """
        if continue_last:
            return self._render_open(messages)
        return self._render(messages, add_generation_prompt=True)

    def _render_open(self, messages: _Messages) -> str:
        """Everything up to the end of the last message.

        This is how the finished conversation begins whatever follows, since a mark stands where
        the rest of the message will.
        """
        last = messages[-1] if messages else {}
        if last.get("role") != "assistant":
            raise InputError(
                f"continue_last goes on with the assistant's message, but the last one is of role "
                f"{last.get('role')!r}; add the beginning of an answer, or leave continue_last out"
            )
        open_ended = [*messages[:-1], {**last, "content": last["content"] + _END}]
        text, mark, _ = self._render(open_ended, add_generation_prompt=False).rpartition(_END)
        self._check_continued(last["content"], text if mark else None, messages)
        return text

    def _check_continued(self, content: str, text: str | None, messages: _Messages) -> None:
        if text is None or not text.endswith(content):
            raise InputError(
                "the chat template rewrites the last message (it leaves out or changes a part of "
                f"{self._shown(content)!r}), so it cannot be gone on with; shorten the message to "
                "what the template keeps, such as the text after a reasoning block"
            )
        if not self._render(messages, add_generation_prompt=False).startswith(text):
            blanks = content[len(content.rstrip()) :]
            raise InputError(
                f"the chat template trims the end of the last message ({blanks!r}), so it cannot "
                "be gone on with as it stands; take the blanks off its end, the model writes them"
                if blanks
                else "the chat template writes an unfinished message differently from a finished "
                "one, so it cannot be gone on with; use `context: {type: text}`"
            )

    def _render(self, messages: _Messages, *, add_generation_prompt: bool) -> str:
        try:
            return self._apply(messages, add_generation_prompt)
        except Exception as error:
            raise self._refusal(messages, error) from error

    def _apply(self, messages: _Messages, add_generation_prompt: bool) -> str:
        return str(
            self._inner.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )

    def _refusal(self, messages: _Messages, error: Exception) -> InputError:
        others = [message for message in messages if message["role"] != "system"]
        if len(others) < len(messages) and self._accepts(others):
            return InputError(
                f"the chat template of this model takes no system message (it says: {error}); "
                "leave `system` out, or write its text into the first message of the user"
            )
        roles = ", ".join(str(message["role"]) for message in messages)
        return InputError(
            f"the chat template refuses the conversation (roles: {roles}). It says: {error}"
        )

    def _accepts(self, messages: _Messages) -> bool:
        try:
            self._apply(messages, True)
        except Exception:
            return False
        return bool(messages)
