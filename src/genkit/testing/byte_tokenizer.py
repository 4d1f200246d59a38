"""A tokenizer whose ids are bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SPECIAL = ("<bos>", "<eos>", "<|im_start|>", "<|im_end|>")


class ByteTokenizer:
    """Ids 0 to 255 are the bytes of UTF-8; four special ids follow.

    ``<bos>`` 256, ``<eos>`` 257, ``<|im_start|>`` 258 and ``<|im_end|>`` 259, the last two for
    conversations in the manner of ChatML. Text never becomes a special id.

    Args:
        add_bos: whether `encode` begins with ``<bos>`` where special tokens are asked for.
    """

    vocab_size = 256 + len(_SPECIAL)
    bos_token_id, eos_token_id, turn_start_id, turn_end_id = range(256, 256 + len(_SPECIAL))
    special_token_ids = frozenset(range(256, 256 + len(_SPECIAL)))

    def __init__(self, add_bos: bool = False) -> None:
        self.add_bos = add_bos

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The bytes of a text."""
        ids = list(text.encode())
        return [self.bos_token_id, *ids] if self.add_bos and add_special_tokens else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some bytes; ids that are none are omitted."""
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")

    def token_text(self, token_id: int) -> str:
        """The letter of a byte, or the name of a special id."""
        if token_id >= 256:
            return _SPECIAL[token_id - 256] if token_id < self.vocab_size else f"<{token_id}>"
        return chr(token_id) if token_id < 128 else f"<0x{token_id:02X}>"

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        continue_last: bool = False,
        raw_special_tokens: bool = False,
    ) -> list[int]:
        """A conversation in the manner of ChatML."""
        ids: list[int] = []
        for message in messages:
            ids += self._open(message["role"]) + list(str(message["content"]).encode())
            ids += [self.turn_end_id, *b"\n"]
        return ids[:-2] if continue_last else ids + self._open("assistant")

    def _open(self, role: str) -> list[int]:
        return [self.turn_start_id, *f"{role}\n".encode()]
