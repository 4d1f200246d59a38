"""Watches that parts keep their contract, and names the one that does not.

Writing into the logits is noticed by their version counter. A write through `.data` or a numpy view
does not move it, so in the first step of a run a copy is compared as well; a part that writes there
in later steps only is found by the laws of `genkit.testing`.

The loop calls whatever has the right shape. The pipeline hands it guarded parts: the checks are a
few comparisons a call, and an error says which part failed and in which step.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from genkit.core.contracts import (
    Cache,
    CacheManager,
    LogitsProcessor,
    Model,
    Sampler,
    StopCriterion,
    blamed,
    name_of,
)
from genkit.core.state import GenerationState
from genkit.errors import FAILURES, GenkitError, ModelOutputError, PartError, RunError

logger = logging.getLogger(__name__)


class _Guard:
    """A part behind checks; every other attribute is the part's own."""

    appended = 0  # whether the token of the step is in the state already when the part is called
    state: GenerationState | None = None  # of the last call

    def __init__(self, part: Any, name: str) -> None:
        self.part = part
        self.label = name
        if getattr(part, "reorder", None) is not None:
            self.reorder = self._reorder

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "part":  # not set yet: while unpickling or copying
            raise AttributeError(attribute)
        return getattr(self.part, attribute)

    def _reorder(self, indices: Sequence[int]) -> None:
        """Let rows leave, or come twice, after the step that the last call belongs to."""
        called = "" if self.state is None else f"step {int(self.state.num_generated[0]) - 1}: "
        with blamed(called + self.label, "reorder"):
            self.part.reorder(indices)

    def _called(self, state: GenerationState, *arguments: torch.Tensor) -> torch.Tensor:
        """What the part gives in this step: some tensor."""
        self.state = state
        try:
            out = self.part(state, *arguments)
        except RunError:
            raise
        except FAILURES as error:
            raise self._broken(state, f"raised {type(error).__name__}: {error}") from error
        if not isinstance(out, torch.Tensor):
            raise self._broken(state, f"returned {type(out).__name__}, not a tensor")
        return out

    def _broken(self, state: GenerationState, what: str) -> PartError:
        step = int(state.num_generated[0]) - self.appended
        return PartError(f"step {step}: {self.label} {what}")


class _GuardedLogits(_Guard):
    """A part that is given logits, and leaves them alone."""

    def _answer(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """What the part makes of the logits: some tensor."""
        copy = logits.clone() if self.state is None else None
        version = _version(logits)
        out = self._called(state, logits)
        if _version(logits) != version or (copy is not None and _differs_in_bits(copy, logits)):
            raise self._broken(state, "wrote into the logits it was given; return new ones")
        return out


class GuardedProcessor(_GuardedLogits):
    """A logits processor that keeps shape, dtype and device, and leaves its input alone."""

    part: LogitsProcessor

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        out = self._answer(state, logits)
        if _differs(out, logits.shape, logits.dtype, logits.device):
            raise self._broken(state, f"returned {_kind(out)}, but was given {_kind(logits)}")
        return out


class GuardedSampler(_GuardedLogits):
    """A sampler that gives one int64 id a row."""

    part: Sampler

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        out = self._answer(state, logits)
        if _differs(out, logits.shape[:1], torch.int64, logits.device):
            wanted = f"int64 [{len(logits)}] on {logits.device}"
            raise self._broken(state, f"returned {_kind(out)}, not {wanted}")
        return out


_REPORTED = {"matched", "position", "text_end"}


class GuardedStopCriterion(_Guard):
    """A stop criterion that gives one bool a row.

    Results name what was listed, whatever it has made for the run.
    """

    part: StopCriterion
    appended = 1

    def __init__(self, part: StopCriterion, label: str, listed: object) -> None:
        super().__init__(part, label)
        self.name = getattr(part, "name", name_of(listed))
        listed_reason = getattr(listed, "finish_reason", "stop")
        self.finish_reason = getattr(part, "finish_reason", listed_reason)
        if getattr(part, "report", None) is not None:
            self.report = self._report
        if getattr(part, "held_back", None) is not None:
            self.held_back = self._held_back

    def _report(self, state: GenerationState, i: int) -> dict[str, Any]:
        part: Any = self.part
        try:
            details = dict(part.report(state, i))
        except FAILURES as error:
            what = f"raised {type(error).__name__} in `report`: {error}"
            raise self._broken(state, what) from error
        if unknown := sorted(map(str, details.keys() - _REPORTED)):
            known = ", ".join(sorted(_REPORTED))
            raise self._broken(state, f"reported {', '.join(unknown)}; known: {known}")
        return details

    def _held_back(self, text: str) -> int:
        part: Any = self.part
        with blamed(self.label, "held_back"):
            count = part.held_back(text)
            if type(count) is not int or count < 0:
                raise TypeError(f"it gave {count!r}, not a number of letters")
        return count

    def __call__(self, state: GenerationState) -> torch.Tensor:
        out = self._called(state)
        if out is state.finished:
            return out
        device = state.finished.device
        if _differs(out, (len(state),), torch.bool, device):
            wanted = f"bool [{len(state)}] on {device}"
            raise self._broken(state, f"returned {_kind(out)}, not {wanted}")
        return out


class GuardedManager(_Guard):
    """A cache manager that hands out a cache with something left to feed."""

    part: CacheManager

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """The part's cache."""
        try:
            cache = self.part.acquire(model, state)
        except GenkitError:
            raise
        except FAILURES as error:
            what = f"raised {type(error).__name__} in `acquire`: {error}"
            raise self._broken(state, what) from error
        length = getattr(cache, "length", None)
        if not isinstance(length, int):
            kind = type(cache).__name__
            raise self._broken(state, f"returned {kind} from `acquire`, which is no cache")
        if not 0 <= length < state.length:
            raise self._broken(
                state,
                f"gave a cache with {length} columns for a text of {state.length}; one at least "
                "must be left to feed",
            )
        return cache

    def release(self, cache: Cache, state: GenerationState) -> None:
        """Give the cache back. What has ended the run is not hidden by an error of this."""
        ending = sys.exception()
        try:
            self.part.release(cache, state)
        except FAILURES as error:
            what = f"{self.label} raised {type(error).__name__} in `release`: {error}"
            if ending is None:
                raise PartError(what) from error
            logger.warning("%s", what)


def unguarded(part: Any) -> Any:
    """The part itself, behind whatever guards it: what identifies it from run to run."""
    while isinstance(part, _Guard):
        part = part.part
    return part


_WIDE = (torch.float32, torch.float64)


class GuardedModel(_Guard):
    """A model whose logits have the shape it declares, and that gives no id without a token.

    Many models give more logits than their tokenizer has ids, to round the width up. Those ids mean
    nothing, so their logits become -inf; an end token is kept wherever it lies.
    """

    part: Model

    def __init__(self, part: Model, name: str, num_ids: int | None = None) -> None:
        """Guard a model.

        Args:
            part: the model.
            name: how errors call it.
            num_ids: of the tokenizer, None where there is none.
        """
        super().__init__(part, name)
        self.vocab_size = part.vocab_size
        self._unused = _ids_without_token(part, num_ids)
        if getattr(part, "last", None) is not None:
            self.last = self._last

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        return self._checked(self.part(input_ids, cache), len(input_ids), self.vocab_size)

    def _last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        part: Any = self.part
        return self._checked(part.last(input_ids, cache, n), len(input_ids), n, self.vocab_size)

    def _checked(self, logits: Any, *shape: int) -> torch.Tensor:
        if not isinstance(logits, torch.Tensor):
            raise ModelOutputError(
                f"the model gave {type(logits).__name__}, not a tensor of logits"
            )
        if logits.shape != shape:
            raise ModelOutputError(
                f"the model gave logits of shape {list(logits.shape)}, not {list(shape)}"
            )
        if not logits.is_floating_point():
            raise ModelOutputError(f"the model gave {_kind(logits)}, which are no logits: floats")
        wide: torch.Tensor = logits if logits.dtype in _WIDE else logits.float()
        return wide if self._unused is None else wide.masked_fill(self._unused, -math.inf)


def _ids_without_token(model: Model, num_ids: int | None) -> torch.Tensor | None:
    """Which ids no token has, bool `[vocab_size]`; None if each has one."""
    if num_ids is None or num_ids >= model.vocab_size:
        return None
    unused = torch.arange(model.vocab_size) >= num_ids
    unused[sorted(model.eos_token_ids)] = False
    return unused.to(model.device) if bool(unused.any()) else None


def _version(logits: torch.Tensor) -> int:
    """How often the tensor was written to; tensors of inference mode do not count it."""
    return 0 if logits.is_inference() else logits._version


def _differs_in_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of floats differ, where NaN is equal to itself."""
    as_ints = {4: torch.int32, 8: torch.int64}[one.element_size()]
    return not torch.equal(one.view(as_ints), other.view(as_ints))


def _differs(
    tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> bool:
    return (
        tensor.shape != shape
        or tensor.dtype != dtype
        or tensor.device != device
        or tensor.layout != torch.strided
    )


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = "" if tensor.layout == torch.strided else f" ({tensor.layout})"
    return f"{dtype} {list(tensor.shape)} on {tensor.device}{layout}"
