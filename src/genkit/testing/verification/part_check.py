"""All laws of one part, on drawn runs and small models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from genkit.components.base import Component
from genkit.components.caches import Dynamic, Static
from genkit.core.contracts import Model, name_of
from genkit.errors import FAILURES, InputError
from genkit.pipeline import Pipeline
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.checks.decoding import hold_to
from genkit.testing.checks.parts import check_sampler, hold_part_to
from genkit.testing.laws.admission import refuse_tolerance_without_bound
from genkit.testing.laws.context import CONTEXT_LAWS, broken_by_context
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.decoding import LAWS
from genkit.testing.laws.exporter import (
    EXPORTER_LAWS,
    LAWS_OF_WRITE,
    broken_by_exporter,
    why_not_ready,
)
from genkit.testing.laws.law import Law, Verdict
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.laws.observer import OBSERVER_LAWS, broken_by_observer
from genkit.testing.laws.part import PartLaw
from genkit.testing.laws.processor import PROCESSOR_LAWS
from genkit.testing.laws.rehearsal import Kind
from genkit.testing.laws.sampler import DRAWS_BY_PROBABILITY, SAMPLER_LAWS
from genkit.testing.laws.stop_criterion import STOP_CRITERION_LAWS
from genkit.testing.tiny_model import TinyModel
from genkit.testing.verification.law_row import LawRow
from genkit.testing.verification.trial import goes_by_the_clock

__all__ = ["PartCheck"]

_LAWS_OF_PARTS: dict[str, tuple[PartLaw, ...]] = {
    "logits_processor": PROCESSOR_LAWS,
    "sampler": SAMPLER_LAWS,
    "stop_criterion": STOP_CRITERION_LAWS,
}

_END_THE_TRIAL = (
    "has a function",
    "works when it is called",
    "runs without an error",
    "encodes to ids",
)

_PROMPTS: tuple[Any, ...] = ("abc de", [{"role": "user", "content": "abc de"}])


class PartCheck:
    """Tries every law of a kind, whichever of them are broken.

    The checks for tests end with the first broken law. Here that one is left out and the others are
    tried again, so that each law has a row, and each broken one its own smallest case.

    Args:
        place: how the rows call the part.
        num_cases: how many runs are drawn.
    """

    def __init__(self, place: str, num_cases: int) -> None:
        self._place = place
        self._num_cases = num_cases

    def rows(self, part: Component, load: Callable[[Any], Model]) -> Iterator[LawRow]:
        """A row for each law of a component.

        Args:
            part: of any kind.
            load: gives the model of a backend.

        Raises:
            GenkitError: it cannot be tried at all.
        """
        if part.kind in _LAWS_OF_PARTS:
            yield from self._part(part)
        elif part.kind == "cache_manager":
            Pipeline(TinyModel(), cache=part)  # refused before any law is tried
            refuse_tolerance_without_bound(part)
            yield from self._decoding(LAWS, part, manager=part)
        elif part.kind == "backend":
            yield from self._backend(load(part))
        elif part.kind == "decoder":
            yield from self._decoder(part)
        elif part.kind == "context":
            yield from self._found(CONTEXT_LAWS, broken_by_context(part, _taken_by(part)))
        elif part.kind == "exporter":
            yield from self._exporter(part)
        else:
            words = f"there are no laws of the kind {part.kind!r}"
            yield LawRow("no laws", words, None, detail=words, part=self._place)

    def rows_of_observer(self, observer: Any) -> Iterator[LawRow]:
        """A row for each law of observers."""
        yield from self._found(OBSERVER_LAWS, broken_by_observer(observer))

    def _part(self, part: Any) -> Iterator[LawRow]:
        kind: Kind = part.kind
        laws = _LAWS_OF_PARTS[kind]
        if goes_by_the_clock(part):
            reason = "it ends rows by the clock, so that no run can be repeated"
            yield from (self._row(law, None, reason) for law in laws)
            return

        def hold(some: Sequence[PartLaw]) -> list[LawRow]:
            silent = hold_part_to(kind, some, part, max_examples=self._num_cases)
            return [
                self._row(law, None if law.name in silent else True, silent.get(law.name, ""))
                for law in some
            ]

        rows = self._one_by_one(laws, hold)
        if kind == "sampler" and not any(row.holds is False for row in rows):
            rows += self._not_of_every([DRAWS_BY_PROBABILITY], partial(self._draws, part))
        yield from rows

    def _draws(self, part: Any, laws: Sequence[PartLaw]) -> list[LawRow]:
        check_sampler(part, distribution=True, max_examples=1)
        return [self._row(law, True) for law in laws]

    def _backend(self, model: Model) -> Iterator[LawRow]:
        yield from self._decoding((*MODEL_LAWS, *LAWS), model, model=model, manager=Dynamic())
        if "static" in model.supports:
            other = PartCheck(f"{self._place}, static cache", self._num_cases)
            yield from other._decoding(LAWS, model, model=model, manager=Static())

    def _decoder(self, decoder: Any) -> Iterator[LawRow]:
        both: dict[str, Any] = {"manager": Dynamic(), "decoder": decoder}
        yield from self._decoding((*DECODER_LAWS, *LAWS), decoder, **both)
        hold = partial(self._hold_to, name_of(decoder), **both)
        yield from self._not_of_every([SAME_AS_THE_PLAIN_LOOP], hold)

    def _exporter(self, exporter: Any) -> Iterator[LawRow]:
        lacking = why_not_ready(exporter)
        for row in self._found(EXPORTER_LAWS, broken_by_exporter(exporter)):
            is_untried = lacking and row.holds and row.name in LAWS_OF_WRITE
            words = f"not tried: it is not ready here: {lacking}"
            yield replace(row, holds=None, cases=0, detail=words) if is_untried else row

    def _decoding(self, laws: Sequence[Law], part: Any, **pipeline: Any) -> list[LawRow]:
        return self._one_by_one(laws, partial(self._hold_to, name_of(part), **pipeline))

    def _hold_to(self, name: str, laws: Sequence[Law], **pipeline: Any) -> list[LawRow]:
        verdicts = hold_to(laws, name, max_examples=self._num_cases, **pipeline)
        return list(map(self._row_of, verdicts))

    def _one_by_one(
        self, laws: Sequence[Any], hold: Callable[[Sequence[Any]], list[LawRow]]
    ) -> list[LawRow]:
        """The rows of all laws, in their order; `hold` raises for the first that is broken."""
        rows: list[LawRow] = []
        left = list(laws)
        while left:
            try:
                rows += hold(left)
                break
            except LawBroken as broken:
                rows += [
                    self._row(law, False, broken.evidence) for law in left if law.name == broken.law
                ]
                left = [law for law in left if law.name != broken.law]
        names = [law.name for law in laws]
        return sorted(rows, key=lambda row: names.index(row.name))

    def _not_of_every(
        self, laws: Sequence[Any], hold: Callable[[Sequence[Any]], list[LawRow]]
    ) -> list[LawRow]:
        """The rows of laws that a part need not keep: not kept is not broken."""
        return [
            row if row.holds else replace(row, holds=None, detail=f"not promised: {row.detail}")
            for row in self._one_by_one(laws, hold)
        ]

    def _found(self, laws: Mapping[str, str], broken: Iterable[LawBroken]) -> Iterator[LawRow]:
        """The rows of laws that are tried together, each with the first case that breaks it."""
        evidence: dict[str, str] = {}
        for each in broken:
            evidence.setdefault(each.law, each.evidence)
        ended = next((law for law in _END_THE_TRIAL if law in evidence), None)
        for name, statement in laws.items():
            if name in evidence:
                row = LawRow(name, statement, False, 1, evidence[name])
            elif ended is not None:
                row = LawRow(name, statement, None, 0, f"not tried to the end: {ended!r} is broken")
            else:
                row = LawRow(name, statement, True, 1)
            yield replace(row, part=self._place)

    def _row(self, law: Any, holds: bool | None, detail: str = "") -> LawRow:
        cases = {True: self._num_cases, False: 1, None: 0}[holds]
        return LawRow(law.name, law.statement, holds, cases, detail, part=self._place)

    def _row_of(self, verdict: Verdict) -> LawRow:
        return replace(LawRow.of(verdict), part=self._place)


def _taken_by(context: Any) -> Any:
    """A prompt that a context takes, or the first where it takes none."""
    for prompt in _PROMPTS:
        try:
            context.encode(prompt, ByteTokenizer())
        except InputError:
            continue
        except FAILURES:  # a law will name it
            return prompt
        return prompt
    return _PROMPTS[0]
