"""Checks for the tests of plugins: cache managers, backends and decoders, on many drawn cases.

A check is one line of a test: ``check_cache_manager(MyManager(size=2))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genkit.components.caches import Dynamic, Static
from genkit.core.contracts import Model, name_of
from genkit.errors import MissingPackageError
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.decoding import LAWS
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Law, Verdict
from genkit.testing.laws.law_broken import LawBroken
from genkit.testing.laws.model import MODEL_LAWS

__all__ = ["check_backend", "check_cache_manager", "check_decoder"]


def check_cache_manager(
    manager: Any, model: Model | None = None, *, max_examples: int | None = None
) -> list[Verdict]:
    """Hold a cache manager to `LAWS`.

    Args:
        manager: a component, or any object that can be copied; each law begins with a new one.
        model: what it serves; by default small random models in float64, of several architectures,
            so that rounding is far below what any mistake does.
        max_examples: how many cases are drawn; by default what the active profile of Hypothesis
            says.

    Returns:
        What was found out about each law, those included that do not apply.

    Raises:
        LawBroken: a law is broken; the case is made as small as possible first.
        MissingPackageError: Hypothesis is not installed.
    """
    return _check(LAWS, name_of(manager), model, manager, max_examples)


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
    verdicts = _check((*MODEL_LAWS, *LAWS), name, model, Dynamic(), max_examples)
    if "static" in model.supports:
        verdicts += _check(LAWS, f"{name} with a static cache", model, Static(), max_examples)
    return verdicts


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
    return _check(laws, name_of(decoder), None, Dynamic(), max_examples, decoder)


def _check(
    laws: Sequence[Law],
    name: str,
    model: Model | None,
    manager: Any,
    max_examples: int | None,
    decoder: Any = None,
) -> list[Verdict]:
    """Try each law on each drawn case."""
    try:
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import strategies as st
    except ImportError:
        advice, purpose = "pip install hypothesis", f"the check of {name!r}"
        raise MissingPackageError("hypothesis", advice, purpose) from None
    from genkit.testing.checks.decoding_cases import cases, pipelines, tiny_models

    findings = {law.name: Finding() for law in laws}
    reasons: dict[str, str] = {}
    tried = list(laws)

    def holds(data: Any, pipeline: Pipeline) -> None:
        case: Case = data.draw(cases(pipeline.model))
        for law in tried:
            if reason := law.why_not(pipeline):
                reasons[law.name] = reason
                continue
            found = law.examine(pipeline, case)
            findings[law.name] += found
            if found.mismatches:
                tried[:] = [law]  # a smaller case is to break the same law
                raise LawBroken(law.name, name, found.detail) from found.error

    models = tiny_models() if model is None else st.just(model)
    drawn = pipelines(models, st.just(manager), st.just(decoder))
    chosen: dict[str, Any] = {} if max_examples is None else {"max_examples": max_examples}
    quietly = settings(
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=set(settings().phases) - {Phase.explain},
        suppress_health_check=[HealthCheck.too_slow],
        **chosen,
    )
    quietly(given(st.data(), drawn)(holds))()
    return [_verdict(law, findings[law.name], reasons.get(law.name, ""), name) for law in laws]


def _verdict(law: Law, finding: Finding, reason: str, name: str) -> Verdict:
    """What all cases show together: none of them broke the law."""
    if finding.cases and not finding.holds:
        raise LawBroken(law.name, name, finding.summary)
    return Verdict(law, finding, "" if finding.cases else reason)
