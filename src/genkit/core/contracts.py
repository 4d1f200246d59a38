"""The call shapes the loop knows. Any callable of the shape fits, a lambda too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch

from genkit.core.result import Steps
from genkit.core.state import GenerationState
from genkit.errors import FAILURES, GenkitError, PartError

CAPABILITIES = {
    "crop": "the cache can be cut back to an earlier length",
    "reorder": "rows of the cache can be dropped, repeated and permuted",
    "layers": "keys and values can be read and replaced as torch tensors",
    "block": "more than one token can be fed after a past",
    "ragged": "rows of different lengths can be decoded together",
    "positions": "a cache may hold fewer keys than there are positions",
    "static": "a cache can be allocated once, for the whole run",
}

GRADES = {
    "exact": "the logits of decoding without a cache, up to rounding",
    "tolerance": "those logits within a bound that the manager states",
    "lossy": "other logits; what is lost is measured",
}
"""What a cache manager can promise."""

Layer = tuple[torch.Tensor, torch.Tensor]
"""Keys `[batch, heads, slots, key_dim]` and values `[batch, heads, slots, value_dim]`."""


class Cache(Protocol):
    """The memory of one run: what the model has already seen of `state.token_ids`.

    Attributes:
        length: number of columns of `state.token_ids` consumed, one number for all rows.
        starts: first real column of each row, int64 `[batch]`.
        supports: which of `CAPABILITIES` hold for this model and this manager together.

    What lies beyond `length` is garbage: after a failed call, ``crop(length)`` restores the cache.
    """

    @property
    def length(self) -> int:
        """Columns consumed."""

    @property
    def starts(self) -> torch.Tensor:
        """First real columns."""

    @property
    def supports(self) -> frozenset[str]:
        """Capabilities."""

    def advance(self, n: int) -> None:
        """`n` more columns have been consumed. The one seam between steps; managers override it."""

    def crop(self, length: int) -> None:
        """Forget every column from `length` on."""

    def reorder(self, indices: Sequence[int]) -> None:
        """Keep the rows `indices`, in this order; a row may be taken twice."""


class LayeredCache(Cache, Protocol):
    """A cache whose keys and values can be read and replaced; the capability `layers`.

    What a manager needs that works on any backend: it wraps such a cache and changes what is in it.
    Models touch a cache through its methods only, so that a wrapper may override any of them.

    Between two forwards the layers hold what `length` columns left behind, one slot a column unless
    something else was put there with `replace`.
    """

    @property
    def layers(self) -> Sequence[Layer]:
        """Keys and values of each layer that holds some: views, good until the next call.

        Slots are right-aligned: the last one stands for the last column, and those of a row's
        padding hold garbage. Slots and heads may differ between layers, and key from value width.
        """

    def replace(
        self, i: int, keys: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None = None
    ) -> None:
        """Put other keys and values into layer `i` of `layers`; they are copied.

        What is put there stands for the `length` columns that the cache has: call `advance` first.

        Args:
            i: index into `layers`; in an empty cache, of the layers that there will be.
            keys, values: in the shape of the layer, with as many slots as are wanted.
            columns: which column each slot stands for, int64 `[batch, slots]`, rising along the
                slots, -1 at the left for none. None: slot j is column j. To leave a column out that
                is real takes the capability `positions`.
        """

    def open(self) -> Any:
        """A forward begins; what it returns is between the cache and its backend.

        The model calls it before each forward. A cache that keeps its content in another form
        between steps puts it back here.
        """

    @property
    def num_bytes(self) -> int:
        """Memory held for keys and values, room for later columns included."""


@runtime_checkable
class Model(Protocol):
    """What turns ids into logits.

    Attributes:
        vocab_size: width of the logits.
        eos_token_ids: every id that ends a text; may be empty.
        context_length: the most tokens of one row, or None if the model knows no limit.
        device: where `input_ids` are expected and logits are given.
        supports: which of `CAPABILITIES` the model has.

    A model may also have

    - ``last(input_ids, cache, n) -> logits [batch, n, vocab]``, the logits of the last `n` columns
      fed, which scoring and speculation need,
    - ``new_static_cache(state)``, as `new_cache`, but all memory of the run is taken at once
      (capability `static`),
    - `cache_must_use`, the capabilities that a manager must require to be used with it,
    - ``fingerprint() -> str``, equal only for models with the same weights in the same precision;
      what is kept on disk is kept under it,
    - ``weights_version``, another value after the weights were changed in place; what was computed
      before is then of no use,
    - `rounds`, true where what flows through the model is rounded to few bits while it computes, as
      in a graph with quantised activations: how tokens are fed together then changes logits by more
      than rounding errors, and laws measure by how much,
    - `takes_one_row`, true where it cannot be fed several rows at once, whatever keeps the past,
    - a `tokenizer`.
    """

    vocab_size: int
    eos_token_ids: frozenset[int]
    context_length: int | None
    device: torch.device
    supports: frozenset[str]

    def __call__(self, input_ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Feed the columns that `cache` does not hold; logits of the last position.

        Args:
            input_ids: int64 `[batch, n]`, the columns `cache.length ... cache.length + n - 1`.
            cache: read and extended. Positions and mask come from `cache.starts` and
                `cache.length`; each piece of the forward pass begins with `cache.open` (see
                `LayeredCache`) and, if it succeeds, ends with `cache.advance`, never before.

        Returns:
            float `[batch, vocab_size]`, float32 at least.
        """

    def new_cache(self, state: GenerationState) -> Cache:
        """An empty cache for the rows of `state`, of at most `state.max_length` columns."""


class CacheManager(Protocol):
    """Hands out the cache of a run and takes it back."""

    def acquire(self, model: Model, state: GenerationState) -> Cache:
        """A cache that holds exactly ``state.token_ids[:, :cache.length]``.

        At least one column a row is left to feed. The cache shares no memory with what is stored.
        """

    def release(self, cache: Cache, state: GenerationState) -> None:
        """The run is over, by success or by failure. Rows that left earlier are gone."""


class LogitsProcessor(Protocol):
    """Changes the distribution of the next token.

    May have `keeps_argmax`, `may_empty` and `may_allow`, as the base class of components says; the
    laws ask for them.
    """

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """New logits of the same shape, dtype and device; the input stays untouched.

        A forbidden token is `-inf`, never a finite floor.
        """


class Sampler(Protocol):
    """Chooses the next token."""

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """One id a row, int64 `[batch]`. Randomness comes only from `state.rng`.

        Where nothing can be drawn it is -1, or an id whose logit is not finite: by either the loop
        sees that the step has failed.
        """


class StopCriterion(Protocol):
    """Says which rows end with the token just appended.

    May have

    - `name` and `finish_reason` (default `stop`),
    - ``report(state, i) -> {"matched": ..., "position": ..., "text_end": ...}``, any of the fields
      of `Stop`, asked right after the call that ended row `i`,
    - ``bound(num_prompt_tokens) -> int | None``: the most tokens of its own that a row may reach,
      asked before `bind`,
    - ``held_back(text) -> int``: how many letters at the end of a text a stream must not show yet.
    """

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """bool `[batch]`; true at the step that ends the row."""


class Decoder(Protocol):
    """A loop over the contracts above."""

    def __call__(
        self,
        model: Model,
        manager: CacheManager,
        processors: Sequence[LogitsProcessor],
        sampler: Sampler,
        stop_criteria: Sequence[StopCriterion],
        state: GenerationState,
    ) -> Steps:
        """Generate until every row has finished.

        Yields:
            Steps with ids of the model for rows that have not finished; the last step of each row
            has the `Stop` that ended it. A pipeline refuses others with a `PartError`.
        """


def capabilities_of(model: Model, manager: Any) -> frozenset[str]:
    """What a model supports with a cache manager.

    A manager without `supports(model)` leaves the model's own; no manager can feed several rows to
    a model that takes one.
    """
    has_own = callable(getattr(manager, "supports", None))
    supports: frozenset[str] = claimed_capabilities(model, manager) if has_own else model.supports
    return supports - {"reorder"} if getattr(model, "takes_one_row", False) else supports


def claimed_capabilities(model: Model, manager: Any) -> Any:
    """What the manager's `supports(model)` says.

    Raises:
        PartError: it raised.
    """
    with blamed(place_of("cache", manager), "supports"):
        return manager.supports(model)


@contextmanager
def blamed(place: str, method: str = "") -> Iterator[None]:
    """Makes what a part raises and did not mean to an error that names it; not for each step.

    Args:
        place: how errors call the part.
        method: which of its methods is called, where that is not the part itself.

    Raises:
        PartError: it raised something else than an error of genkit.
    """
    try:
        yield
    except GenkitError:
        raise
    except FAILURES as error:
        where = f" in `{method}`" if method else ""
        raise PartError(f"{place} raised {type(error).__name__}{where}: {error}") from error


def name_of(part: Any) -> str:
    """How messages call a part: its `name`, its recipe name, or that of its class or function."""
    for attribute in ("name", "type", "__name__"):
        name = getattr(part, attribute, None)
        if isinstance(name, str):
            return name
    return type(part).__name__


def place_of(key: str, part: Any) -> str:
    """How errors call a part of a pipeline: `processors.0 (calm, of the plugin 'calm')`."""
    plugin = getattr(part, "plugin", "")
    origin = f", of the plugin {plugin!r}" if plugin else ""
    return f"{key} ({name_of(part)}{origin})"


def label_of(part: Any) -> str:
    """How errors call a part: with its place in the pipeline, where that is known."""
    label = getattr(part, "label", None)
    return label if isinstance(label, str) else repr(name_of(part))
