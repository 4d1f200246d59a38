"""All that depends on the version of transformers, and the memory its models write into.

Written for 5.x and meant to hold for 4.57: there the cache is handed over as `past_key_values`,
later as `cache`; `Cache.crop` took a length and now takes a number of tokens. Keys and values are
therefore cut and reordered here and not by methods of the library.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from genkit.core.contracts import Layer
from genkit.errors import UnsupportedError

CACHE_ARGUMENTS = ("cache", "past_key_values", "cache_params", "state")
"""What architectures and versions call the memory that they are handed."""

# Before 5.x no layer shared the keys of another, and there was no stand-in for one.
_Shared: Any = getattr(cache_utils, "DummyLayer", type("NoSuchLayer", (), {}))


class Signature:
    """What the forward of an architecture takes.

    Attributes:
        cache: the name of the argument for the memory, None if there is none.
        positions: whether it takes `position_ids`, and they begin at 0.
        mask: whether it takes `attention_mask`.
        logits_to_keep: whether it can compute the logits of the last positions only.
        use_cache: whether it takes `use_cache`, by name or among its keywords.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        parameters = inspect.signature(module.forward).parameters
        keywords = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.cache = next((name for name in CACHE_ARGUMENTS if name in parameters), None)
        self.positions = "position_ids" in parameters and not counting_from_ids(module)
        self.mask = "attention_mask" in parameters
        self.logits_to_keep = "logits_to_keep" in parameters
        self.use_cache = "use_cache" in parameters or keywords


def counting_from_ids(module: torch.nn.Module) -> list[Any]:
    """The embeddings that, like RoBERTa's, find positions by looking which ids are padding.

    Their first position is one more than the padding id.
    """
    name = "create_position_ids_from_input_ids"
    return [part for part in module.modules() if hasattr(part, name)]


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, written into room that doubles.

    Appending a token copies that token, while the library's own layer copies all tokens at every
    step. Windowed layers keep everything too, so that they can be cut back; their mask does the
    windowing.

    Args:
        max_length: the most columns that there will be; room never grows beyond it.
        static: take all of that room at once.
    """

    def __init__(self, max_length: int, static: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.max_length = max_length
        self.static = static
        self.rooms: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append `[batch, heads, n, dim]`; all keys and values so far."""
        held = self.get_seq_length()
        length = held + key_states.shape[-2]
        if not self.rooms or length > self.rooms[0].shape[-2]:
            self._allocate(held, length, max(2 * length, 64), key_states, value_states)
        key_room, value_room = self.rooms
        key_room[:, :, held:length] = key_states
        value_room[:, :, held:length] = value_states
        self.keys, self.values = key_room[:, :, :length], value_room[:, :, :length]
        return self.keys, self.values

    def _allocate(self, held: int, length: int, wanted: int, *states: torch.Tensor) -> None:
        """Room for `wanted` slots, or the most there will be; the first `held` are taken over."""
        wanted = self.max_length if self.static else wanted
        room = max(length, min(wanted, self.max_length))
        shapes = [(*new.shape[:2], room, new.shape[-1]) for new in states]
        try:
            grown = [new.new_empty(shape) for new, shape in zip(states, shapes, strict=True)]
        except RuntimeError as error:  # CPU and CUDA alike
            num_bytes = sum(math.prod(shape) * states[0].element_size() for shape in shapes)
            raise UnsupportedError(
                f"the cache found no memory for the {room:,} columns of a layer "
                f"({num_bytes / 1e9:.3g} GB); limit the answer (`max_new_tokens`)"
                + (", or use the cache 'dynamic', which grows with the text" if self.static else "")
            ) from error
        if held:
            for new, old in zip(grown, self.rooms, strict=True):
                new[:, :, :held] = old[:, :, :held]
        self.rooms = grown
        if not self.is_initialized:
            self.dtype, self.device = states[0].dtype, states[0].device
            self.is_initialized = True

    def held(self) -> Layer:
        """Keys and values, once there are some."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def cut(self, length: int) -> None:
        """Keep the first `length` columns, if there are more."""
        if self.get_seq_length() > length:
            self.show(length)

    def show(self, length: int) -> None:
        """Hold the first `length` columns of the room."""
        self.keys, self.values = (room[:, :, :length] for room in self.rooms)

    def put(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold these instead, in the room there is if it fits; 0 slots give the memory back."""
        length = keys.shape[-2]
        spare = 64 if length else 0
        if not self._fits(keys, length, 2 * (length + spare)):
            self.rooms = []
            self._allocate(0, length, length + spare, keys, values)
        for room, new in zip(self.rooms, (keys, values), strict=True):
            own = new.untyped_storage().data_ptr() == room.untyped_storage().data_ptr()
            # Within one memory the parts may overlap, and then a copy in place is undefined.
            room[:, :, :length] = new.clone() if own else new
        self.keys, self.values = (room[:, :, :length] for room in self.rooms)

    def _fits(self, keys: torch.Tensor, least: int, most: int) -> bool:
        """Whether there is room for the rows of `keys`, for as many slots and not for far more."""
        if not self.rooms or self.rooms[0].shape[0] != keys.shape[0]:
            return False
        room = self.rooms[0].shape[-2]
        return least <= room and (self.static or room <= most)

    def take(self, index: torch.Tensor) -> None:
        """Keep the rows `index`."""
        held = self.get_seq_length()
        if held:
            taken = [room[:, :, :held].index_select(0, index) for room in self.rooms]
            # What is not in use is not copied: most of a room that was taken at once may be empty.
            self.rooms = [room.new_empty((len(index), *room.shape[1:])) for room in self.rooms]
            for room, rows in zip(self.rooms, taken, strict=True):
                room[:, :, :held] = rows
            self.show(held)


class WritingLayer(DynamicLayer):
    """A layer as compiled code sees it: one column is written into a buffer of fixed size.

    Args:
        keys, values: the buffers, `[batch, heads, size, dim]`.
        column: where to write, int64 `[1]`.
        count: how many columns are in use, the one that is written included.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor, count: int
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.buffers = keys, values
        self.column = column
        self.count = count
        self.is_initialized = True

    def get_seq_length(self) -> int:
        """Columns held before this one."""
        return self.count - 1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many keys there are to attend to, and the first of them."""
        return self.count, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[batch, heads, 1, dim]`; the columns in use."""
        keys, values = self.buffers
        # In place, which a plain assignment to a slice would not be once it is compiled.
        keys.index_copy_(2, self.column, key_states)
        values.index_copy_(2, self.column, value_states)
        return keys[:, :, : self.count], values[:, :, : self.count]


def writing_cache(
    shared: Sequence[bool], rooms: Sequence[Layer], column: torch.Tensor, count: int
) -> Cache:
    """What compiled code hands to a model: its buffers, as layers that are written into."""
    own = iter(rooms)
    return Cache(
        layers=[_Shared() if s else WritingLayer(*next(own), column, count) for s in shared]
    )


class AttentionMemory:
    """Keys and values of every column, layer by layer.

    Args:
        shared: for each layer, whether it reads the keys of another one and holds none.
        max_length: the most columns that there will be.
        static: whether memory for all of them is taken at once.
    """

    def __init__(self, shared: Sequence[bool], max_length: int, static: bool = False) -> None:
        self.shared = shared
        self.max_length = max_length
        self.static = static
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        layers: list[Any] = [
            _Shared() if shared else GrowingLayer(self.max_length, self.static)
            for shared in self.shared
        ]
        self.past = Cache(layers=layers)

    def keep(self, output: Any) -> None:
        """Nothing to do: a forward writes into `past`."""

    def crop(self, length: int) -> None:
        """Hold the first `length` columns; layers that a failed forward left unequal too."""
        for layer in self._own():
            layer.cut(length)

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        layers = [layer for layer in self._own() if layer.is_initialized]
        if layers:
            index = torch.tensor(indices, device=layers[0].device)
            for layer in layers:
                layer.take(index.to(layer.device))

    def num_layers(self) -> int:
        """How many layers hold keys of their own."""
        return len(self._own())

    def layers(self) -> list[Layer]:
        """Keys and values of these layers, once there are some."""
        return [layer.held() for layer in self._own() if layer.is_initialized]

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold these in layer `i` instead."""
        self._own()[i].put(keys, values)

    def num_bytes(self) -> int:
        """Memory held."""
        return sum(room.nbytes for layer in self._own() for room in layer.rooms)

    def rooms(self) -> list[Layer]:
        """The whole memory of these layers, used or not; empty unless it was taken at once."""
        layers = self._own() if self.static else []
        return [(layer.rooms[0], layer.rooms[1]) for layer in layers if layer.rooms]

    def extend(self, length: int) -> None:
        """Columns up to `length` have been written into the rooms."""
        for layer in self._own():
            layer.show(length)

    def _own(self) -> list[GrowingLayer]:
        return [layer for layer in self.past.layers if isinstance(layer, GrowingLayer)]


class RecurrentMemory:
    """A state that the model makes and folds every token into; what was folded in stays.

    Args:
        name: under which the model is handed the state, and returns it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.past: Any = None

    def clear(self) -> None:
        """Hold nothing: the model begins with a state of its own."""
        self.past = None

    def keep(self, output: Any) -> None:
        """Hold the state that the model returned."""
        self.past = getattr(output, self.name)

    def crop(self, length: int) -> None:
        """Refused: a token cannot be taken out of the state."""
        raise UnsupportedError(
            f"the state of a recurrent model cannot be cut back to {length} tokens; start again "
            "with an empty cache"
        )

    def reorder(self, indices: Sequence[int]) -> None:
        """Refused: nothing is known about the shape of the state."""
        raise UnsupportedError("the state of a recurrent model is not reordered; run row after row")

    def num_layers(self) -> int:
        """None holds keys of every column."""
        return 0

    def layers(self) -> list[Layer]:
        """Refused: nothing is known about the shape of the state."""
        raise UnsupportedError("a recurrent model keeps a state, not keys and values of columns")

    def put(self, i: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Refused, for the same reason."""
        self.layers()

    def num_bytes(self) -> int:
        """Memory held in tensors that can be found in the state."""
        return sum(t.nbytes for t in _tensors(self.past))

    def rooms(self) -> list[Layer]:
        """There are none."""
        return []

    def extend(self, length: int) -> None:
        """Nothing is ever written into rooms that there are none of."""


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """The tensors in a state that a model made, whatever it is made of."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _tensors(value)
    elif hasattr(state, "__dict__"):
        yield from _tensors(vars(state))


def shared_layers(config: Any) -> list[bool] | None:
    """For each layer, whether it holds no keys of its own; None if a layer is no plain attention.

    The library's own cache for this config says what each layer is. Layers that remember in another
    form than one key and value a column (recurrent, convolutional, compressed, indexed) make the
    whole model recurrent for us.
    """
    try:
        layers = DynamicCache(config=config).layers
    except Exception:  # the config of an architecture that has a cache of its own
        return None
    plain = (DynamicLayer, DynamicSlidingWindowLayer, _Shared)
    if not layers or any(type(layer) not in plain for layer in layers):
        return None
    return [isinstance(layer, _Shared) for layer in layers]


def has_windows(config: Any) -> bool:
    """Whether a layer of a model without a recurrent state sees the last tokens only."""
    layers = DynamicCache(config=config).layers
    return any(isinstance(layer, DynamicSlidingWindowLayer) for layer in layers)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's progress bars and remarks out of the terminal while it loads."""
    log = transformers.utils.logging
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
