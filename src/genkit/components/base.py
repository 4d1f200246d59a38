"""What all parts have in common, and the base class of each kind.

A component is a frozen description: options, checked when they are given. It holds no state of a
run, so that one object serves any number of runs and threads. `bind` makes the callable for a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genkit.components.misfits import misfits
from genkit.core import contracts
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import ContextLengthError, InputError, OptionError, OptionProblem, nearest


class Component(BaseModel):
    """A part: its options and how it is made ready for a run.

    A subclass gives its recipe name as ``type: Literal["name"] = "name"`` and its options as
    fields. The first line of its docstring is the summary that `genkit parts` shows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: ClassVar[str]
    plugin: ClassVar[str] = ""
    """The plugin that brought it, which errors name; set where it is registered."""
    type: str

    def __init__(self, /, *unnamed: Any, **options: Any) -> None:
        """Check the options.

        Raises:
            OptionError: an option is unknown, missing, of the wrong type or out of range.
        """
        if unnamed:
            raise TypeError(f"options are named: {type(self).__name__}(name=value, ...)")
        misfit = self._misfits(options)
        if misfit:
            raise OptionError(self.type_name(), misfit)
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise OptionError(self.type_name(), self._problems(error)) from None

    @classmethod
    def type_name(cls) -> str:
        """The name in recipes."""
        field = cls.model_fields.get("type")
        name = field.default if field is not None else None
        return name if isinstance(name, str) else cls.__name__

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    def bind(self, run: Run) -> Any:
        """The callable for one run.

        Itself where there is no state; a fresh object, with ``reorder(indices)``, where there is
        state for each row; None where the part does nothing in this run.
        """
        return self

    @classmethod
    def _problems(cls, error: ValidationError) -> list[OptionProblem]:
        problems = []
        for entry in error.errors(include_url=False):
            message = entry["msg"].removeprefix("Value error, ")
            if entry["type"] == "extra_forbidden":
                options = sorted(set(cls.model_fields) - {"type"})
                close = nearest(str(entry["loc"][0]), options)
                known = ", ".join(options) or "none"
                message = f"there is no such option{close}; options: {known}"
            elif entry["type"] == "missing":
                message = "this option is required"
            elif entry["type"] == "too_short":
                message = f"at least {entry['ctx']['min_length']} is needed, found an empty list"
            else:
                message = f"{message[:1].lower()}{message[1:]}, found {entry['input']!r}"
            problems.append(OptionProblem(tuple(entry["loc"]), message, entry["input"]))
        return _first_of_each(problems)

    @classmethod
    def _misfits(cls, options: Mapping[str, Any]) -> list[OptionProblem]:
        return [
            OptionProblem((name, *path), message, found)
            for name, value in options.items()
            if name in cls.model_fields
            for path, message, found in misfits(cls.model_fields[name].annotation, value)
        ]


def _first_of_each(problems: list[OptionProblem]) -> list[OptionProblem]:
    """Without those that only follow from one inside the same option."""
    wrong = {problem.path[0] for problem in problems if len(problem.path) > 1}
    return [p for p in problems if len(p.path) != 1 or p.path[0] not in wrong]


class LogitsProcessor(Component):
    """Base of the parts that change the distribution of the next token.

    ``(state, logits [batch, vocab]) -> logits [batch, vocab]``: same shape, dtype and device, the
    input untouched, forbidden tokens `-inf`.
    """

    kind: ClassVar[str] = "logits_processor"
    keeps_argmax: ClassVar[bool] = False
    """Whether the most probable token is the same afterwards; the laws check it."""
    may_empty: ClassVar[bool] = False
    """Whether it may forbid every token of a row that has allowed ones, which ends the run."""
    may_allow: ClassVar[bool] = False
    """Whether it may allow a token that is forbidden already, as one that forces tokens does."""
    acts_on_allowed: ClassVar[bool] = False
    """Whether it looks at nothing but the logits of the allowed tokens of a row, in the order of
    ids, so that it may be called with these alone.

    One that does, and keeps the first so many tokens in the order of their logits, may also have

    - ``narrow(row) -> candidates or None``: of a `candidates.Row`, every token that it keeps, also
      after others like it, and more; None where that is no small part of the row;
    - ``shorten(ranked) -> bool``: keep the first so many of a `ranked.Ranked`; False where it takes
      the whole row to know;
    - ``needs_total = True``, if it has to know the weight of a whole row.

    Then a chain that ends with a draw looks at candidates only.
    """

    @property
    def is_neutral(self) -> bool:
        """Whether it changes nothing with the options it has; then `bind` gives None."""
        return False

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """The new logits. Parts with state give another callable from `bind`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor bind")


class Sampler(Component):
    """Base of the parts that choose the next token: ``(state, logits) -> token_ids [batch]``."""

    kind: ClassVar[str] = "sampler"

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        """One id a row; where nothing can be drawn -1, or an id whose logit is not finite."""
        raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor bind")


class StopCriterion(Component):
    """Base of the parts that end rows: ``(state) -> bool [batch]``.

    Attributes:
        finish_reason: what results give as the reason: `stop`, `length`, `time` or `cancelled`.
    """

    kind: ClassVar[str] = "stop_criterion"
    finish_reason: ClassVar[str] = "stop"

    @property
    def name(self) -> str:
        """How results call the criterion."""
        return self.type

    def bound(self, num_prompt_tokens: int) -> int | None:
        """The most tokens of its own, prompt included, that a row may reach; None: no bound."""
        return None

    def __call__(self, state: GenerationState) -> torch.Tensor:
        """True for each row that ends with the token just appended."""
        raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor bind")


class CacheManager(Component):
    """Base of the parts that hand out caches.

    Attributes:
        grade: `exact` (same real arithmetic as without a cache), `tolerance` (within a stated bound
            on the logits) or `lossy` (no bound; measured).
        logit_bound: with the grade `tolerance`, by how much any logit may differ from the one
            without a cache.
        requires: what a model must support to be served.
    """

    kind: ClassVar[str] = "cache_manager"
    grade: ClassVar[Literal["exact", "tolerance", "lossy"]] = "exact"
    logit_bound: ClassVar[float] = 0.0
    requires: ClassVar[frozenset[str]] = frozenset()

    def supports(self, model: contracts.Model) -> frozenset[str]:
        """What this model supports with this manager; by default all that the model supports."""
        return model.supports

    def acquire(self, model: contracts.Model, state: GenerationState) -> contracts.Cache:
        """A cache that holds exactly ``state.token_ids[:, :cache.length]``."""
        raise NotImplementedError(f"{type(self).__name__} defines neither acquire nor bind")

    def release(self, cache: contracts.Cache, state: GenerationState) -> None:
        """The run is over."""


class Decoder(Component):
    """Base of the loops over a pipeline's parts; `requires`: what model and cache must support."""

    kind: ClassVar[str] = "decoder"
    requires: ClassVar[frozenset[str]] = frozenset()


class Context(Component):
    """Base of the parts that turn a prompt into ids."""

    kind: ClassVar[str] = "context"
    overflow: Literal["error", "truncate_left"] = Field(
        "error",
        description="what happens to a prompt that does not fit into the model's context: `error`, "
        "or `truncate_left`, which drops the oldest ids",
    )

    def encode(self, prompt: Any, tokenizer: Any) -> list[int]:
        """The ids of a prompt.

        Raises:
            InputError: the prompt is of a kind that this context does not take.
        """
        raise NotImplementedError

    def fit(
        self, ids: list[int], longest: int | None, limits: object, tokenizer: Any = None
    ) -> list[int]:
        """The ids, at most `longest` of them.

        Args:
            ids: the prompt.
            longest: the most ids that leave room for an answer; None: no limit.
            limits: where that number comes from, for the error.
            tokenizer: names the begin token, which `truncate_left` keeps.

        Raises:
            ContextLengthError: the prompt is longer and `overflow` is `error`.
        """
        if longest is None or len(ids) <= longest:
            return ids
        if self.overflow == "error":
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens, and at most {longest} leave room for an answer "
                f"({limits}); shorten it, or drop its oldest tokens with "
                "`context.overflow: truncate_left`"
            )
        bos = getattr(tokenizer, "bos_token_id", None)
        if bos is not None and ids[0] == bos and longest > 1:
            return [bos, *ids[1 - longest :]]
        return ids[-longest:]


def check_token_ids(option: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that the model does not have.

    Raises:
        InputError: an id lies outside ``0 <= id < vocab_size``.
    """
    outside = [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
    if outside:
        raise InputError(
            f"{option}: {outside[0]} is no token id of this model; ids run from 0 to "
            f"{vocab_size - 1}"
        )
