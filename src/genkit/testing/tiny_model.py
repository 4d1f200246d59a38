"""A small random transformer, without a download and without transformers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from genkit.core.contracts import CAPABILITIES, Layer
from genkit.core.fingerprint import fingerprint_of, version_of
from genkit.core.state import GenerationState
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.text.tokenizer import Tokenizer


class TinyModel:
    """A decoder of a few layers with grouped-query attention and large random weights.

    Its logits are far from flat, so that a wrong position or mask shows. It supports everything a
    model can, so that every part can be tested over it.

    Args:
        seed: of the weights; no global generator is touched.
        vocab_size: width of the logits; by default that of `ByteTokenizer`.
        num_layers, num_heads, num_kv_heads, head_dim: the architecture.
        positions: `rotary`, a `learned` table, or `alibi`: scores fall with the distance.
        window: how many positions a token sees, itself included; None: all before it. A list has
            one entry for each layer.
        context_length: the most tokens of a row.
        eos_token_ids: ids that end a text; by default none, so that random runs do not end early.
        tokenizer: by default `ByteTokenizer` where the vocabulary is wide enough, otherwise none.
        dtype, device: where and in what precision it computes.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        vocab_size: int = ByteTokenizer.vocab_size,
        num_layers: int = 2,
        num_heads: int = 8,
        num_kv_heads: int = 2,
        head_dim: int = 6,
        positions: Literal["rotary", "learned", "alibi"] = "rotary",
        window: int | Sequence[int | None] | None = None,
        context_length: int = 256,
        eos_token_ids: Sequence[int] = (),
        tokenizer: Tokenizer | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(eos_token_ids)
        self.context_length: int | None = context_length
        self.device = torch.device(device)
        self.supports = frozenset(CAPABILITIES)
        wide_enough = vocab_size >= ByteTokenizer.vocab_size
        self.tokenizer = tokenizer or (ByteTokenizer() if wide_enough else None)
        self.dtype = dtype
        self.windows = tuple(window) if isinstance(window, Sequence) else (window,) * num_layers
        if len(self.windows) != num_layers:
            raise ValueError(f"window has {len(self.windows)} entries for {num_layers} layers")
        self.num_kv_heads, self.head_dim = num_kv_heads, head_dim
        self.num_heads, self.num_layers = num_heads, num_layers
        self.position_kind = positions
        pairs = torch.arange(head_dim // 2, device=self.device, dtype=dtype)
        self.frequencies = torch.pow(100.0, -pairs / (head_dim // 2))
        heads = torch.arange(1, num_heads + 1, device=self.device, dtype=dtype)
        self.slopes = torch.pow(2.0, -8 * heads / num_heads)  # Press et al. 2022

        generator = torch.Generator().manual_seed(seed)
        width = 32

        def weight(*shape: int) -> torch.Tensor:
            values = torch.randn(*shape, generator=generator, dtype=torch.float64)
            return (values / math.sqrt(shape[0])).to(dtype=dtype, device=self.device)

        self.embedding = weight(vocab_size, width) * math.sqrt(vocab_size)
        self.positions = weight(context_length, width) * math.sqrt(context_length)
        self.layers = [
            {
                "q": weight(width, num_heads * head_dim) * 2,
                "k": weight(width, num_kv_heads * head_dim) * 2,
                "v": weight(width, num_kv_heads * head_dim),
                "o": weight(num_heads * head_dim, width),
                "up": weight(width, 2 * width),
                "down": weight(2 * width, width),
            }
            for _ in range(num_layers)
        ]
        self.head = weight(width, vocab_size) * 3

    def new_cache(self, state: GenerationState) -> TinyCache:
        """An empty cache."""
        return TinyCache(self.num_layers, state.starts, self.supports)

    def new_static_cache(self, state: GenerationState) -> TinyCache:
        """An empty cache with room for all columns of the run."""
        return TinyCache(self.num_layers, state.starts, self.supports, room=state.max_length)

    def fingerprint(self) -> str:
        """Equal for equal weights, in the same precision, used in the same way."""
        facts = {
            "class": type(self).__qualname__,
            "heads": (self.num_heads, self.num_kv_heads, self.head_dim),
            "positions": self.position_kind,
            "windows": self.windows,
        }
        return fingerprint_of(facts, self._weights())

    @property
    def weights_version(self) -> int:
        """Another number after a weight was written to."""
        return version_of(self._weights())

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "embedding", self.embedding
        yield "positions", self.positions
        yield "head", self.head
        for i, weights in enumerate(self.layers):
            yield from ((f"{i}.{name}", weight) for name, weight in weights.items())

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        """The logits of the last position, `[batch, vocab]`."""
        return self.last(input_ids, cache, 1)[:, 0]

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        """The logits of the last `n` positions fed, `[batch, n, vocab]`."""
        cache.open()
        count = input_ids.shape[1]
        columns = torch.arange(cache.length, cache.length + count, device=self.device)
        hidden = self.embedding[input_ids]
        positions = self._positions(columns, cache.starts)
        if self.position_kind == "learned":
            hidden = hidden + self.positions[positions]
        angles = positions[:, None, :, None] * self.frequencies
        rotation = (angles.cos(), angles.sin()) if self.position_kind == "rotary" else None
        for i, weights in enumerate(self.layers):
            hidden = hidden + self._attend(i, weights, _norm(hidden), columns, rotation, cache)
            hidden = hidden + torch.tanh(_norm(hidden) @ weights["up"]) @ weights["down"]
        logits: torch.Tensor = _norm(hidden[:, -n:]) @ self.head
        cache.advance(count)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _attend(
        self,
        i: int,
        weights: dict[str, torch.Tensor],
        hidden: torch.Tensor,
        columns: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        cache: Any,
    ) -> torch.Tensor:
        query = _rotate(_split(hidden @ weights["q"], self.num_heads), rotation)
        key = _rotate(_split(hidden @ weights["k"], self.num_kv_heads), rotation)
        value = _split(hidden @ weights["v"], self.num_kv_heads)
        keys, values, key_columns = cache.extend(i, key, value, columns)
        share = self.num_heads // self.num_kv_heads
        keys = keys.repeat_interleave(share, dim=1)
        values = values.repeat_interleave(share, dim=1)
        scores = query @ keys.transpose(-1, -2) / math.sqrt(self.head_dim)
        distance = columns[None, :, None] - key_columns[:, None, :]
        if self.position_kind == "alibi":
            scores = scores - self.slopes[:, None, None] * distance[:, None]
        real = key_columns >= cache.starts[:, None]
        visible = self._sees(i, distance) & real[:, None, :]
        scores = scores.masked_fill(~visible[:, None], torch.finfo(scores.dtype).min)
        mixed = scores.softmax(-1) @ values
        joined: torch.Tensor = mixed.transpose(1, 2).flatten(2)
        return joined @ weights["o"]

    def _positions(self, columns: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """The position of each column in each row, int64 `[batch, columns]`."""
        return (columns - starts[:, None]).clamp(min=0)

    def _sees(self, i: int, distance: torch.Tensor) -> torch.Tensor:
        """Whether layer `i` looks back over a distance, bool in the shape of `distance`."""
        seen = distance >= 0
        window = self.windows[i]
        return seen if window is None else seen & (distance < window)


class TinyCache:
    """Keys and values of each layer, and the column that each of their slots stands for.

    See `genkit.core.contracts.LayeredCache`.

    Args:
        num_layers: how many layers there will be.
        starts: first real column of each row.
        supports: capabilities of the model.
        room: slots for which memory is taken at once; None: as many as are needed, each time.
    """

    def __init__(
        self,
        num_layers: int,
        starts: torch.Tensor,
        supports: frozenset[str],
        room: int | None = None,
    ) -> None:
        self.length = 0
        self.starts = starts
        self.supports = supports
        self._room = room
        self._layers: list[Layer | None] = [None] * num_layers
        self._columns: list[torch.Tensor | None] = [None] * num_layers
        self._rooms: list[Layer | None] = [None] * num_layers

    def extend(
        self, i: int, key: torch.Tensor, value: torch.Tensor, columns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Keys, values and columns of layer `i` with new ones at the end."""
        new = columns.expand(len(key), -1)
        layer, old = self._layers[i], self._columns[i]
        if layer is not None and old is not None:
            key, value = torch.cat((layer[0], key), 2), torch.cat((layer[1], value), 2)
            new = torch.cat((old, new), 1)
        key, value = self._stored(i, key, value)
        self._layers[i], self._columns[i] = (key, value), new
        return key, value, new

    @property
    def layers(self) -> list[Layer]:
        """``(keys [batch, heads, slots, dim], values)`` of each layer."""
        self.open()
        return [layer for layer in self._layers if layer is not None]

    @property
    def num_bytes(self) -> int:
        """Memory held for keys and values."""
        held = [layer if room is None else room
                for layer, room in zip(self._layers, self._rooms, strict=True)]  # fmt: skip
        return sum(tensor.nbytes for layer in held if layer is not None for tensor in layer)

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Put other keys and values into layer `i`; `columns` `[batch, slots]`, -1 for none."""
        if columns is None:
            columns = torch.arange(keys.shape[2], device=keys.device).expand(len(keys), -1)
        self._layers[i] = self._stored(i, keys.clone(), values.clone())
        self._columns[i] = columns

    def open(self) -> None:
        """Drop what an earlier call may have left beyond `length`."""
        self.crop(self.length)

    def advance(self, n: int) -> None:
        """`n` more columns have been consumed."""
        self.length += n

    def crop(self, length: int) -> None:
        """Forget every column from `length` on."""
        self.length = min(self.length, length)
        for i, (layer, columns) in enumerate(zip(self._layers, self._columns, strict=True)):
            if layer is not None and columns is not None and columns.numel():
                kept = columns.shape[1] - int((columns >= length).sum(1).max())
                self._layers[i] = (layer[0][:, :, :kept], layer[1][:, :, :kept])
                self._columns[i] = columns[:, :kept]

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order."""
        index = torch.tensor(indices, device=self.starts.device)
        self.starts = self.starts[index]
        self._layers = [layer and (layer[0][index], layer[1][index]) for layer in self._layers]
        self._columns = [None if held is None else held[index] for held in self._columns]
        self._rooms = [None] * len(self._rooms)

    def _stored(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> Layer:
        """The same keys and values; with a `room`, in the memory that was taken for them."""
        if self._room is None:
            return keys, values
        key_room, value_room = self._rooms[i] or (
            new.new_empty((*new.shape[:2], self._room, new.shape[-1])) for new in (keys, values)
        )
        self._rooms[i] = key_room, value_room
        slots = keys.shape[2]
        key_room[:, :, :slots], value_room[:, :, :slots] = keys, values
        return key_room[:, :, :slots], value_room[:, :, :slots]


def _norm(hidden: torch.Tensor) -> torch.Tensor:
    return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)


def _split(projected: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[batch, tokens, heads * dim]` to `[batch, heads, tokens, dim]`."""
    heads: torch.Tensor = projected.unflatten(-1, (num_heads, -1))
    return heads.transpose(1, 2)


def _rotate(
    heads: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021), halves layout, where there is a rotation."""
    if rotation is None:
        return heads
    cos, sin = rotation
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
