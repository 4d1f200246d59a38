"""Checks for the tests of plugins: cache managers, backends and decoders, on many drawn cases.

A check is one line of a test: ``check_cache_manager(MyManager(size=2))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genkit.components.caches import Dynamic, Static
from genkit.core.contracts import Model, name_of
from genkit.pipeline import Pipeline
from genkit.testing.checks.drawn import need_hypothesis, run_drawn
from genkit.testing.laws.admission import refuse_tolerance_without_bound
from genkit.testing.laws.backends import same_as_on
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import rounds
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.decoding import LAWS
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Law, Verdict
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.tiny_model import TinyModel

__all__ = ["check_backend", "check_backends_agree", "check_cache_manager", "check_decoder"]


def check_cache_manager(
    manager: Any, model: Model | None = None, *, max_examples: int | None = None
) -> list[Verdict]:
    """Hold a cache manager to `LAWS`.

    Args:
        manager: a component, or any object that can be copied; each law begins with a new one.
        model: what it serves; by default small random models in float64, of several architectures,
            so that rounding is far below what any mistake does.
        max_examples: how many short cases are drawn; by default what the active profile of
            Hypothesis says. Three long ones are always tried besides.

    Returns:
        What was found out about each law, those included that do not apply.

    Raises:
        LawBroken: a law is broken; the case is made as small as possible first.
        UnsupportedError: it cannot serve the model, or promises a bound and states none.
        MissingPackageError: Hypothesis is not installed.
    """
    name = name_of(manager)
    Pipeline(TinyModel() if model is None else model, cache=manager)  # refused before any case
    refuse_tolerance_without_bound(manager)
    return hold_to(LAWS, name, model=model, manager=manager, max_examples=max_examples)


def check_backend(model: Model, *, max_examples: int | None = None) -> list[Verdict]:
    """Hold what a backend yields to the contract of models: `MODEL_LAWS` and `LAWS`.

    Laws of a capability are tried where the model claims it.

    Args:
        model: what `load` gave.
        max_examples: as for `check_cache_manager`.

    Returns:
        What was found out about each law, those included that do not apply.

    Raises:
        LawBroken, MissingPackageError: as `check_cache_manager`.
    """
    name = type(model).__name__
    both: dict[str, Any] = {"model": model, "max_examples": max_examples}
    verdicts = hold_to((*MODEL_LAWS, *LAWS), name, manager=Dynamic(), **both)
    if "static" in model.supports:
        verdicts += hold_to(LAWS, f"{name} with a static cache", manager=Static(), **both)
    return verdicts


def check_backends_agree(
    model: Model, other: Model, *, max_examples: int | None = None
) -> list[Verdict]:
    """Hold two models that are to be one and the same, on two backends, to `same_as_on`.

    Args:
        model, other: of the same weights.
        max_examples: as for `check_cache_manager`.

    Returns:
        What was found out; `measured` where one of them rounds while it computes.

    Raises:
        LawBroken, MissingPackageError: as `check_cache_manager`.
    """
    names = f"{type(model).__name__} and {type(other).__name__}"
    both: dict[str, Any] = {"model": model, "max_examples": max_examples}
    return hold_to((same_as_on(other),), names, manager=Dynamic(), **both)


def check_decoder(
    decoder: Any, *, same_as_the_plain_loop: bool = True, max_examples: int | None = None
) -> list[Verdict]:
    """Hold a decoder to `DECODER_LAWS` and `LAWS`.

    Args:
        decoder: a component or a plain callable.
        same_as_the_plain_loop: whether it promises the tokens of the plain loop, as speculation
            does and beam search does not.
        max_examples: as for `check_cache_manager`.

    Returns:
        What was found out about each law, those included that do not apply.

    Raises:
        LawBroken, MissingPackageError: as `check_cache_manager`.
    """
    laws = (*DECODER_LAWS, *LAWS)
    if same_as_the_plain_loop:
        laws = (SAME_AS_THE_PLAIN_LOOP, *laws)
    name = name_of(decoder)
    return hold_to(laws, name, manager=Dynamic(), decoder=decoder, max_examples=max_examples)


def hold_to(
    laws: Sequence[Law],
    name: str,
    *,
    model: Model | None = None,
    manager: Any,
    decoder: Any = None,
    max_examples: int | None = None,
) -> list[Verdict]:
    """Try each law on each drawn case, and on a few long ones that are always the same.

    The short ones come first, so that a law that any case breaks is shown with a short one.

    Args:
        laws: which.
        name: how messages call what is checked.
        model, manager, decoder: of the pipelines; by default small random models, and the plain
            loop.
        max_examples: as for `check_cache_manager`.

    Returns:
        What was found out about each law, those included that do not apply.

    Raises:
        LawBroken, MissingPackageError: as `check_cache_manager`.
    """
    need_hypothesis(name)
    from hypothesis import strategies as st

    from genkit.testing.checks.decoding_cases import cases, long_trials, pipelines, tiny_models

    inquiry = _Inquiry(laws, name)
    models = tiny_models() if model is None else st.just(model)
    drawn = pipelines(models, st.just(manager), st.just(decoder))
    run_drawn(
        lambda pipeline, data: inquiry.hold(pipeline, data.draw(cases(pipeline.model))),
        drawn,
        st.data(),
        max_examples=max_examples,
    )
    for pipeline, case in long_trials(model, manager, decoder):
        inquiry.hold_small(pipeline, case)
    return inquiry.verdicts()


class _Inquiry:
    """What is found out about some laws, case by case.

    Args:
        laws: which.
        name: how messages call what is checked.
    """

    def __init__(self, laws: Sequence[Law], name: str) -> None:
        self._laws = laws
        self._name = name
        self._tried = laws
        self._findings = {law.name: Finding() for law in laws}
        self._reasons: dict[str, str] = {}
        self._model_rounds = False

    def hold(self, pipeline: Pipeline, case: Case) -> None:
        """Try every law on one case.

        Raises:
            LawBroken: a law is broken; from now on no other one is tried, as a smaller case is to
                break the same.
        """
        self._model_rounds |= rounds(pipeline.model)
        for law in self._tried:
            if reason := law.why_not(pipeline):
                self._reasons[law.name] = reason
                continue
            found = law.examine(pipeline, case)
            self._findings[law.name] += found
            if found.mismatches:
                self._tried = [law]
                raise LawBroken(law.name, self._name, found.detail) from found.error

    def hold_small(self, pipeline: Pipeline, case: Case) -> None:
        """The same, where Hypothesis makes no case smaller.

        Raises:
            LawBroken: of a case as small as could be found.
        """
        broken = self._broken(pipeline, case)
        while broken is not None:
            again = ((each, self._broken(pipeline, each)) for each in case.smaller())
            found = next(((each, error) for each, error in again if error is not None), None)
            if found is None:
                raise broken
            case, broken = found

    def verdicts(self) -> list[Verdict]:
        """What all cases show together, none of which broke a law.

        Raises:
            LawBroken: too much had to be excused, or nothing was compared.
        """
        verdicts = [self._verdict(law) for law in self._laws]
        for verdict in verdicts:
            if verdict.holds is False:
                raise LawBroken(verdict.law.name, self._name, verdict.detail)
        return verdicts

    def _verdict(self, law: Law) -> Verdict:
        finding = self._findings[law.name]
        if not finding.cases:
            return Verdict(law, finding, self._reasons[law.name])
        return law.verdict(finding, model_rounds=self._model_rounds)

    def _broken(self, pipeline: Pipeline, case: Case) -> LawBroken | None:
        try:
            self.hold(pipeline, case)
        except LawBroken as broken:
            return broken
        return None
