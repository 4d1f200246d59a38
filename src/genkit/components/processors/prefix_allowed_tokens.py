"""The tokens that a function allows after the tokens so far."""

from __future__ import annotations

import math
import pkgutil
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from genkit.components.base import LogitsProcessor, check_token_ids
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import EmptyRowError, OptionError, OptionProblem

_NAMES = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_PATH = rf"^{_NAMES}:{_NAMES}$"


class PrefixAllowedTokens(LogitsProcessor):
    """Forbids all tokens but those that a function allows after the tokens so far.

    ``function(row, token_ids) -> allowed ids`` is called once a row and step. `row` is the index in
    the caller's batch; `token_ids` are all ids of the row, its prompt included and without padding,
    int64 `[tokens]`, not to be written to. It answers with ids in any order, as a list or a tensor:
    ``l'[id] = l[id]`` for these, -inf for all others. An empty answer ends the run with an error
    that names row and step. What it allows and another part has forbidden stays forbidden, unless
    `if_none_left` says otherwise.

    In a recipe the function is named by an import path like ``my_module:my_function``. It is
    imported when a run begins, not when the recipe is read or checked. (`prefix_allowed_tokens_fn`
    of transformers; De Cao et al. 2020.)

    >>> from genkit.testing import process
    >>> part = PrefixAllowedTokens(function=lambda row, token_ids: [int(token_ids[-1]), 3])
    >>> process(part, [1.0, 3.0, 2.0, 2.0], prompt=[0, 1])
    [-inf, 3.0, -inf, 2.0]
    """

    type: Literal["prefix_allowed_tokens"] = "prefix_allowed_tokens"
    may_empty: ClassVar[bool] = True
    may_allow: ClassVar[bool] = True

    function: SkipJsonSchema[Callable[..., Any]] | Annotated[str, Field(pattern=_PATH)] = Field(
        description="a function (row, token_ids) -> ids, in recipes as `module:function`",
        examples=["my_module:my_function"],
    )
    if_none_left: Literal["forbid", "allow"] = Field(
        "forbid",
        description="where all ids that it allows are forbidden already: `forbid` them, which ends "
        "the run, or `allow` them, all alike with the logit 0, as transformers does",
    )

    @field_validator("function", mode="before")
    @classmethod
    def _function_or_path(cls, value: Any) -> Any:
        if callable(value) or (isinstance(value, str) and re.fullmatch(_PATH, value)):
            return value
        raise ValueError("a function is expected, or an import path like `module:function`")

    def bind(self, run: Run) -> _PrefixAllowed:
        """The function itself.

        Raises:
            OptionError: there is no such function.
        """
        return _PrefixAllowed(self, run)


class _PrefixAllowed(Rowless):
    def __init__(self, spec: PrefixAllowedTokens, run: Run) -> None:
        super().__init__(spec.type)
        self.function = _imported(spec.function)
        self.allow = spec.if_none_left == "allow"
        self.vocab_size = run.vocab_size

    def __call__(self, state: GenerationState, logits: torch.Tensor) -> torch.Tensor:
        kept = torch.full_like(logits, -math.inf)
        for i, row in enumerate(state.rows.tolist()):
            allowed = self._allowed(state, i, row).to(logits.device)
            values = logits[i, allowed]
            if self.allow:
                values = torch.where((values == -math.inf).all(), 0.0, values)
            kept[i, allowed] = values
        return kept

    def _allowed(self, state: GenerationState, i: int, row: int) -> torch.Tensor:
        answer = self.function(row, state.row(i))
        ids = answer if isinstance(answer, torch.Tensor) else torch.tensor(list(answer))
        if not ids.numel():
            step = int(state.num_generated[i])
            raise EmptyRowError(f"row {row}, step {step}: the function of {self.name} allows no id")
        if ids.dtype == torch.bool:
            raise TypeError(
                "ids are expected, and the function gave a mask; give mask.nonzero()[:, 0]"
            )
        if ids.is_floating_point():
            raise TypeError(f"ids are whole numbers, and the function gave {ids.tolist()}")
        check_token_ids(self.name, [int(ids.min()), int(ids.max())], self.vocab_size)
        return ids.long()


def _imported(function: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(function, str):
        return function
    try:
        found = pkgutil.resolve_name(function)
    except (ImportError, AttributeError) as error:
        raise _unusable(function, f"{function!r} cannot be imported: {error}") from error
    if not callable(found):
        raise _unusable(function, f"{function!r} is no function")
    return found  # type: ignore[no-any-return]


def _unusable(function: str, message: str) -> OptionError:
    problem = OptionProblem(("function",), message, function)
    return OptionError("prefix_allowed_tokens", [problem])
