"""Runs a test on what Hypothesis draws, in the way that all checks do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genkit.errors import MissingPackageError
from genkit.testing.laws.law_broken import LawBroken

__all__ = ["need_hypothesis", "run_drawn"]


def need_hypothesis(name: str) -> None:
    """Ask for the package before anything is imported that is made of it.

    Args:
        name: how messages call what is checked.

    Raises:
        MissingPackageError: Hypothesis is not installed.
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        advice, purpose = "pip install hypothesis", f"the check of {name!r}"
        raise MissingPackageError("hypothesis", advice, purpose) from None


def run_drawn(test: Callable[..., None], *strategies: Any, max_examples: int | None = None) -> None:
    """Call a test with one value of each strategy, again and again.

    Args:
        test: raises `LawBroken`, always for the same law once it has.
        strategies: of Hypothesis, one for each argument of the test.
        max_examples: how often; by default what the active profile of Hypothesis says.

    Raises:
        LawBroken: of the smallest example that breaks the law; where that example did not break it
            again when it was repeated, of the first one, and the evidence says so.
    """
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky

    seen: list[LawBroken] = []

    def noting(drawn: tuple[Any, ...]) -> None:
        try:
            test(*drawn)
        except LawBroken as broken:
            seen.append(broken)
            raise

    chosen: dict[str, Any] = {} if max_examples is None else {"max_examples": max_examples}
    plainly = settings(
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=set(settings().phases) - {Phase.explain},
        suppress_health_check=[HealthCheck.too_slow],
        **chosen,
    )
    try:
        plainly(given(st.tuples(*strategies))(noting))()
    except Flaky:
        if not seen:
            raise
        raise _not_repeatable(seen[0]) from seen[0].__cause__


def _not_repeatable(broken: LawBroken) -> LawBroken:
    words = (
        "not repeatable: the same example did not break the law again, so that the part remembers "
        "something across runs, or reads a clock or a global generator"
    )
    return LawBroken(broken.law, broken.part, f"{broken.evidence} ({words})")
