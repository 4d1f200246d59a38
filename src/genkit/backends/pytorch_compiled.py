"""The decode step of a PyTorch model, compiled.

A decode step of a small model is hundreds of short operations, and on a CPU much of its time goes
between them. `torch.compile` joins them. A compiled step is made for tensors of certain shapes, so
the cache is a buffer whose size is a power of two, and what changes with every token, how much of
the buffer is in use, is the one number that the compiled code takes as a variable. It reads the
columns in use and no others: a large buffer that is mostly empty costs nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from genkit.backends.column_cache import ColumnCache
from genkit.backends.transformers_compat import writing_cache
from genkit.core.contracts import Layer
from genkit.errors import UnsupportedError

_SMALLEST_BUFFER = 64

_TRACING = threading.RLock()
"""Held in each compiled step: PyTorch's tracer, which any call may come back to, is not made for
several threads."""

Key = tuple[int, bool, bool]
"""What needs a compilation of its own: buffer size, whether several rows, whether a mask."""


def buffer_size(max_length: int) -> int:
    """The least power of two that holds `max_length` columns, and not less than 64."""
    return max(_SMALLEST_BUFFER, 1 << (max_length - 1).bit_length())


class CompiledStep:
    """One token a row on top of a cache whose memory was taken at once.

    There is one compilation for each size of the buffer, and of these one for a single row, one for
    a single row with padding and one for several rows. It is made at the end of the first prefill
    that will need it: the first token comes late and no later one does, and a model that cannot be
    compiled is refused before its first token.

    What is compiled is the module as it is then. Other weights are used as they are; a run that
    begins after layers, hooks, plain attributes or the configuration changed compiles anew.

    Args:
        module: the transformers model.
        shared_layers: see `transformers_compat.shared_layers`.
        arguments: of the module's forward, made of positions, mask and cache.
        compiler: what PyTorch calls a backend of `torch.compile`.
    """

    def __init__(
        self,
        module: Any,
        shared_layers: Sequence[bool],
        arguments: Callable[[torch.Tensor, torch.Tensor | None, Any], dict[str, Any]],
        compiler: str = "inductor",
    ) -> None:
        self._module = module
        self._shared_layers = shared_layers
        self._arguments = arguments
        self._compiler = compiler
        self._steps: dict[Key, Callable[..., torch.Tensor]] = {}
        self._form = _form_of(module)

    @property
    def num_compilations(self) -> int:
        """How many steps have been compiled."""
        return len(self._steps)

    def refresh(self) -> None:
        """A run begins: forget what was compiled of a module that has been changed since."""
        form = _form_of(self._module)
        if form != self._form:
            self._form, self._steps = form, {}

    def prepare(self, cache: ColumnCache) -> None:
        """Compile the step that follows, unless that was done before.

        It is run once to this end, on a column that counts as garbage until it is fed.

        Raises:
            UnsupportedError: the model cannot be compiled.
        """
        rooms = cache.rooms()
        if not rooms or cache.length == rooms[0][0].shape[2] or _key(rooms, cache) in self._steps:
            return
        batch = rooms[0][0].shape[0]
        with _TRACING:
            self._compile(torch.zeros((batch, 1), dtype=torch.int64, device=cache.device), cache)

    def __call__(self, input_ids: torch.Tensor, cache: ColumnCache) -> torch.Tensor | None:
        """The logits of one more column, `[batch, 1, vocab_size]`, which is now in the cache.

        Args:
            input_ids: int64 `[batch, 1]`.
            cache: it is not advanced.

        Returns:
            None if the memory of this cache was not taken at once.
        """
        rooms = cache.rooms()
        if not rooms:
            return None
        with _TRACING:
            step = self._steps.get(_key(rooms, cache))
            if step is None:  # rows have left, and one is alone now
                logits = self._compile(input_ids, cache)
            else:
                logits = step(*_inputs(input_ids, cache, rooms))
        cache.written(1)
        return logits

    def _compile(self, input_ids: torch.Tensor, cache: ColumnCache) -> torch.Tensor:
        rooms = cache.rooms()
        key = _key(rooms, cache)
        step = self._steps.get(key)
        if step is None:
            # PyTorch gives up on a function that was compiled often; each of these stands alone.
            alone = {"isolate_recompiles": True, "recompile_limit": 1000}
            known = inspect.signature(torch.compile).parameters
            more: dict[str, Any] = {name: alone[name] for name in alone if name in known}
            step = torch.compile(
                self._step,
                fullgraph=True,
                backend=self._compiler,
                options={"guard_filter_fn": _worth_checking},
                **more,
            )
        try:
            logits = step(*_inputs(input_ids, cache, rooms))
        except Exception as error:
            what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise UnsupportedError(
                f"`compile: true`: PyTorch cannot compile {type(self._module).__name__} here "
                f"({what}); leave `compile` out"
            ) from error
        self._steps[key] = step
        return logits

    def _step(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        used: torch.Tensor,
        rooms: Sequence[Layer],
    ) -> torch.Tensor:
        """What is compiled. The length of `used`, the columns in use, is the variable."""
        past = writing_cache(self._shared_layers, rooms, used[-1:], used.shape[0])
        logits: torch.Tensor = self._module(
            input_ids, **self._arguments(positions, mask, past)
        ).logits
        return logits[:, -1:]


def _form_of(module: torch.nn.Module) -> list[Any]:
    """Unequal after layers, hooks, plain attributes or the configuration were changed."""
    return [_plain_values(getattr(module, "config", None))] + [
        (
            part,  # itself and not its id, which another part may have one day
            tuple(part._forward_hooks),
            tuple(part._forward_pre_hooks),
            vars(part).get("forward"),
            _plain_values(part),
        )
        for part in module.modules()
    ]


def _plain_values(holder: Any) -> list[Any]:
    """The attributes of an object that are plain, with their types: True is not 1 here."""
    plain = (bool, int, float, str, type(None))
    return [
        (name, type(value), value)
        for name, value in (vars(holder) if hasattr(holder, "__dict__") else {}).items()
        if isinstance(value, plain)
    ]


def _worth_checking(guards: Sequence[Any]) -> list[bool]:
    """What is looked at in each call: tensors, weights included, and modes of PyTorch.

    Checking every attribute of every layer again would take as long as computing one.
    """
    return [guard.guard_type in ("TENSOR_MATCH", "SHAPE_ENV", "GLOBAL_STATE") for guard in guards]


def _key(rooms: Sequence[Layer], cache: ColumnCache) -> Key:
    batch, _, size, _ = rooms[0][0].shape
    return size, batch > 1, cache.needs_mask


def _inputs(input_ids: torch.Tensor, cache: ColumnCache, rooms: Sequence[Layer]) -> tuple[Any, ...]:
    """The inputs of the step, with the sizes marked that vary from call to call."""
    input_ids, positions, mask = _packed(input_ids), _packed(cache.positions(1)), cache.mask(1)
    used = cache.count(cache.length + 1)[0]
    mark = torch._dynamo.mark_dynamic
    mark(used, 0)
    if mask is not None:
        mark(mask, 1)
    if len(input_ids) > 1:
        keys_and_values = [tensor for room in rooms for tensor in room]
        for tensor in (input_ids, positions, mask, *keys_and_values):
            if tensor is not None and tensor.shape[0] > 1:
                mark(tensor, 0)
    return input_ids, positions, mask, used, rooms


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of its shape; those of a view would count as another shape."""
    return tensor.new_empty(tensor.shape).copy_(tensor)
