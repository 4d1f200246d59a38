"""The laws of a pipeline's processors, sampler and stop criteria, on its model's own logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from genkit.core.contracts import name_of
from genkit.errors import FAILURES
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.history import History
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.part import PartLaw
from genkit.testing.laws.processor import PROCESSOR_LAWS
from genkit.testing.laws.rehearsal import play
from genkit.testing.laws.sampler import SAMPLER_LAWS
from genkit.testing.laws.stop_criterion import STOP_CRITERION_LAWS
from genkit.testing.verification.law_row import LawRow
from genkit.testing.verification.trial import goes_by_the_clock

__all__ = ["rows_of_parts"]

_MOST_STEPS = 4  # each law goes through all of them several times


def rows_of_parts(
    pipeline: Pipeline, case: Case, report: Callable[[str], object]
) -> Iterator[LawRow]:
    """One row for each law of each part.

    A processor gets what those before it give, and the sampler what all of them give, as in a run;
    behind a part that breaks a law they get what it was given.

    Args:
        pipeline: whose parts; its model runs once, greedily and with a cache of its own.
        case: what the model runs on.
        report: called with one line before each piece of work.
    """
    parts = pipeline.parts
    num_steps = min(_MOST_STEPS, case.num_tokens)
    report("the model's logits, for the laws of parts")
    recorded = History.recorded(pipeline.model, case.prompts, num_steps)
    history = replace(recorded, tokenizer=pipeline.tokenizer)
    for i, processor in enumerate(parts.processors):
        place = _place(f"processors.{i}", processor)
        report(f"laws of {place}")
        rows = list(_judge(place, processor, history, PROCESSOR_LAWS))
        yield from rows
        if not any(row.holds is False for row in rows):
            history = _behind(processor, history)
    place = _place("sampler", parts.sampler)
    report(f"laws of {place}")
    yield from _judge(place, parts.sampler, history, SAMPLER_LAWS)
    for i, criterion in enumerate(parts.stop_criteria):
        place = _place(f"stop_criteria.{i}", criterion)
        report(f"laws of {place}")
        laws = STOP_CRITERION_LAWS
        if goes_by_the_clock(criterion):
            reason = "it ends rows by the clock, so that no run can be repeated"
            yield from (_row(place, law, None, 0, reason) for law in laws)
        else:
            yield from _judge(place, criterion, recorded, laws)


def _judge(place: str, part: Any, history: History, laws: Sequence[PartLaw]) -> Iterator[LawRow]:
    for law in laws:
        try:
            reason = law(part, history)
        except LawBroken as broken:
            yield _row(place, law, False, 1, broken.evidence)
        except FAILURES as error:  # a part that laws cannot even be tried on
            yield _row(place, law, False, 1, f"raised {type(error).__name__}: {error}")
        else:
            yield _row(place, law, None, 0, reason) if reason else _row(place, law, True, 1)


def _row(place: str, law: PartLaw, holds: bool | None, cases: int, detail: str = "") -> LawRow:
    return LawRow(law.name, law.statement, holds, cases, detail, part=place)


def _place(key: str, part: Any) -> str:
    return f"{key} ({name_of(part)})"


def _behind(processor: Any, history: History) -> History:
    """The history with the logits that a processor gives; as it is where it leaves a row none."""
    answers = torch.stack(play("logits_processor", processor, history), 1)
    if not bool(answers.isfinite().any(-1).all()):
        return history
    rows = zip(history.rows, answers, strict=True)
    return history.of([replace(row, logits=logits) for row, logits in rows])
