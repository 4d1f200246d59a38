"""All laws on one pipeline: what `genkit verify` reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from genkit.components.caches import Dynamic
from genkit.components.samplers import Greedy
from genkit.core.contracts import Model
from genkit.decoders.autoregressive import Autoregressive
from genkit.pipeline import Pipeline
from genkit.testing.laws.admission import refuse_tolerance_without_bound
from genkit.testing.laws.backends import same_as_on
from genkit.testing.laws.comparison import grade_of
from genkit.testing.laws.decoder import DECODER_LAWS
from genkit.testing.laws.decoding import LAWS
from genkit.testing.laws.law import Law, Verdict
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.laws.variant import variant_of
from genkit.testing.verification.law_row import LawRow
from genkit.testing.verification.loss import Loss, measure_loss
from genkit.testing.verification.part_rows import rows_of_parts
from genkit.testing.verification.trial import Trial

__all__ = ["NUM_CASES", "Verification", "verify"]

NUM_CASES = 2

Report = Callable[[str], object]


@dataclass(frozen=True)
class Verification:
    """What was found out about a pipeline.

    Attributes:
        laws: one row for each law, those included that do not apply.
        loss: what a lossy cache costs; None for a cache that promises the logits of none.
        notes: what else to know: parts that were left out, what could not be measured.
    """

    laws: tuple[LawRow, ...]
    loss: Loss | None = None
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no law is broken, and at least one was tried."""
        return not self.broken and any(row.holds for row in self.laws)

    @property
    def broken(self) -> tuple[LawRow, ...]:
        """The laws that do not hold."""
        return tuple(row for row in self.laws if row.holds is False)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, with the keys of the command line's JSON."""
        return {
            "laws": [row.to_dict() for row in self.laws],
            "holds": self.holds,
            "loss": None if self.loss is None else self.loss.to_dict(),
            "notes": list(self.notes),
        }


def verify(
    pipeline: Pipeline,
    *,
    num_cases: int = NUM_CASES,
    seed: int = 0,
    against: Model | None = None,
    progress: Report | None = None,
) -> Verification:
    """Try every law on a pipeline: on its own model, with its own parts.

    The cases are batches of short texts, in turns as the pipeline's context encodes them and plain,
    or of random ids where there is no tokenizer. The laws of processors, sampler and stop criteria
    are tried on logits of the model. The pipeline's observers see none of the runs.

    Args:
        pipeline: stays as it is.
        num_cases: how many batches each law of decoding is tried on.
        seed: of the choice of texts and of everything else that laws choose.
        against: the same model on another backend, which is to give the same tokens.
        progress: called with one line for a person before each law.

    Raises:
        UnsupportedError: the cache manager promises a bound and states none.
    """
    refuse_tolerance_without_bound(pipeline.parts.cache)
    report = progress or _say_nothing
    trial = Trial.of(pipeline, num_cases, seed)
    notes = list(trial.notes)
    with torch.no_grad():
        laws = LAWS if against is None else (*LAWS, same_as_on(against))
        verdicts = _verdicts_of_decoding(trial, laws, report)
        of_parts = _rows_of_parts(pipeline, trial, report, notes)
        loss = _loss(trial, report, notes)
    cache_error = 0.0 if loss is None else loss.worst_logit_error
    rows = [LawRow.of(verdict, cache_error) for verdict in verdicts] + of_parts
    return Verification(tuple(rows), loss, tuple(notes))


def _verdicts_of_decoding(trial: Trial, laws: Sequence[Law], report: Report) -> list[Verdict]:
    pipeline = trial.pipeline
    # A model is judged by itself, whatever other parts make of it.
    plain = Pipeline(pipeline.model, cache=Dynamic(), sampler=Greedy(), stop_criteria=())
    tried = [(law, pipeline) for law in laws] + [(law, plain) for law in MODEL_LAWS]
    if not isinstance(pipeline.parts.decoder, Autoregressive):
        tried += [(law, pipeline) for law in DECODER_LAWS]
    verdicts = []
    for i, (law, subject) in enumerate(tried, 1):
        report(f"law {i} of {len(tried)}: {law.name}")
        verdicts.append(law.judge(subject, trial.cases))
    return verdicts


def _rows_of_parts(
    pipeline: Pipeline, trial: Trial, report: Report, notes: list[str]
) -> list[LawRow]:
    """The rows of all parts, of those as well that were left out of the trial."""
    every = variant_of(trial.pipeline, stop_criteria=pipeline.parts.stop_criteria)
    try:
        return list(rows_of_parts(every, trial.cases[0], report))
    except Exception as error:  # the laws of the model say more
        notes.append(f"the laws of the parts were not tried: {_words(error)}")
        return []


def _loss(trial: Trial, report: Report, notes: list[str]) -> Loss | None:
    if grade_of(trial.pipeline.parts.cache) != "lossy":
        return None
    report("the loss of the cache")
    try:
        loss = measure_loss(trial.pipeline, trial.cases)
    except Exception as error:  # the laws of the batch say more
        notes.append(f"the loss could not be measured: {_words(error)}")
        return None
    if loss.remark:
        notes.append(loss.remark)
    return loss


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _say_nothing(line: str) -> None:
    """Nobody listens."""
