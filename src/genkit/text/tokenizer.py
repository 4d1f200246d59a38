"""What genkit asks of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text, or None."""

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Ids that control the model and are no text; `decode` omits them."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; with `add_special_tokens`, also those the model expects around it."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some ids, special ones omitted, nothing cleaned up.

        Bytes that are no UTF-8 become U+FFFD.
        """

    def token_text(self, token_id: int) -> str:
        """One id as a person would want to see it; special ids by their names."""

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        continue_last: bool = False,
        raw_special_tokens: bool = False,
    ) -> list[int]:
        """The ids of a conversation in the model's own chat template.

        The answer's opening is added, so that generation goes on as the assistant. With
        `continue_last` the last message, the assistant's, is left open and gone on with. Text of a
        message that looks like a special token is encoded as text, unless `raw_special_tokens`.

        Raises:
            InputError: there is no template, or it refuses or rewrites the messages.
        """
