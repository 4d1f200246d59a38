"""Why a step failed: which part emptied a row, or that the model gave NaN."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence

import torch

from genkit.core.contracts import LogitsProcessor, Sampler, label_of
from genkit.core.state import GenerationState
from genkit.errors import (
    FAILURES,
    EmptyRowError,
    GenkitError,
    ModelOutputError,
    PartError,
    RunError,
)


def where_it_was_raised(error: BaseException, step: int) -> BaseException:
    """The error that leaves a run: one that nobody meant says in which step and module it came up.

    Models, caches and decoders raise what they like, which stays what it is; but a `SystemExit`
    would end the program without a word.
    """
    if isinstance(error, GenkitError) or not isinstance(error, FAILURES):
        return error
    where = f"step {step}: {_module_called(error)}"
    if isinstance(error, Exception):
        error.add_note(f"{where} raised it")
        return error
    return PartError(f"{where} raised {type(error).__name__}: {error}")


def _module_called(error: BaseException) -> str:
    """The module that genkit had called when the error came up."""
    modules = modules_of(error)
    ours = [i for i, module in enumerate(modules) if module.partition(".")[0] == "genkit"]
    return modules[min(ours[-1] + 1, len(modules) - 1)] if ours else modules[-1]


def modules_of(error: BaseException) -> list[str]:
    """The module of each call that an error went through, the outermost first."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [str(frame.f_globals.get("__name__")) for frame in frames]


def all_drawn(ids: Sequence[int], values: Sequence[Sequence[float]], vocab_size: int) -> bool:
    """Whether every row has got a token of the model, and one whose logit is a number."""
    if min(ids) < 0 or max(ids) >= vocab_size:
        return False
    return all(math.isfinite(value) for [value] in values)


def why_nothing_was_drawn(
    state: GenerationState,
    stages: Sequence[torch.Tensor],
    processors: Sequence[LogitsProcessor],
    sampler: Sampler,
) -> RunError:
    """Search the intact outputs of a failed step for the part that is to blame."""
    for i in range(len(state)):
        where = f"row {state.rows[i]}, step {state.num_generated[i] - 1}"
        if not _drawable(stages[0][i]):
            return ModelOutputError(
                f"{where}: the model gave {_describe(stages[0][i])}. A model in float16 that "
                "overflows is the usual cause: try `backend.dtype: float32` or `bfloat16`"
            )
        for processor, before, after in _one_by_one(state, stages, processors):
            if not _drawable(after[i]):
                found = _describe(after[i])
                message = (
                    f"{where}: after {label_of(processor)} the row has {found}; "
                    f"before it {int(before[i].isfinite().sum())} tokens were allowed"
                )
                is_empty = bool((after[i] == -math.inf).all())
                return EmptyRowError(message) if is_empty else PartError(message)
    return PartError(
        f"step {int(state.num_generated[0]) - 1}: {label_of(sampler)} chose a token "
        "that is forbidden, or none, though every row has tokens that are allowed"
    )


def _one_by_one(
    state: GenerationState, stages: Sequence[torch.Tensor], processors: Sequence[LogitsProcessor]
) -> Iterator[tuple[LogitsProcessor, torch.Tensor, torch.Tensor]]:
    """Each processor, what it got and what it gave; one that stands for several is each of them."""
    for processor, before, after in zip(processors, stages, stages[1:], strict=False):
        parts = getattr(processor, "stands_for", ())
        if not parts:
            yield processor, before, after
        for part in parts:
            given = part(state, before)
            yield part, before, given
            before = given


def _drawable(logits: torch.Tensor) -> bool:
    return not bool((logits.isnan() | (logits == math.inf)).any()) and bool(logits.isfinite().any())


def _describe(logits: torch.Tensor) -> str:
    for count, what in (
        (int(logits.isnan().sum()), "NaN"),
        (int((logits == math.inf).sum()), "+inf"),
    ):
        if count:
            return f"{what} in {count} of {len(logits)} logits"
    return "no token that is allowed (every logit is -inf)"
