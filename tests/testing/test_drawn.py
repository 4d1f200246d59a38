"""What all checks make of a test that fails, always or only sometimes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from genkit import caches
from genkit.testing import LAWS, LawBroken, check_cache_manager
from genkit.testing.checks.drawn import run_drawn


def test_the_smallest_example_is_shown() -> None:
    def small(number: int, other: int) -> None:
        if number > 3:
            raise LawBroken("is small", "a part", f"found {number}")

    with pytest.raises(LawBroken, match="'a part' breaks the law 'is small': found 4\n"):
        run_drawn(small, st.integers(0, 1000), st.integers())


def test_it_runs_as_often_as_it_is_told() -> None:
    seen: list[int] = []
    run_drawn(seen.append, st.integers(), max_examples=7)
    assert len(seen) == 7


def test_an_example_that_breaks_the_law_only_once_is_not_repeatable() -> None:
    calls: list[int] = []

    def third(number: int) -> None:
        calls.append(number)
        if len(calls) == 3:
            raise LawBroken("lasts", "a part", f"found {number}") from ValueError("no luck")

    with pytest.raises(LawBroken, match="'lasts'") as caught:
        run_drawn(third, st.integers())
    assert caught.value.evidence.startswith(f"found {calls[2]} (not repeatable: the same example")
    assert str(caught.value.__cause__) == "no luck"


def test_another_error_that_comes_only_once_stays_what_it_is() -> None:
    calls: list[int] = []

    def third(number: int) -> None:
        calls.append(number)
        if len(calls) == 3:
            raise ValueError("no luck")

    with pytest.raises(Flaky):
        run_drawn(third, st.integers())


class SpoilsOneRun(caches.Dynamic):
    """Remembers across all managers how many caches there have been."""

    num_caches: ClassVar[int] = 0

    def acquire(self, model: Any, state: Any) -> Any:
        cache = super().acquire(model, state)
        SpoilsOneRun.num_caches += 1
        if SpoilsOneRun.num_caches == 200:
            cache.starts = cache.starts + 1
        return cache


def test_a_manager_that_remembers_across_runs_is_not_repeatable() -> None:
    with pytest.raises(LawBroken, match="not repeatable.*remembers something") as caught:
        check_cache_manager(SpoilsOneRun(), max_examples=10)
    assert caught.value.law in {law.name for law in LAWS}
