from types import SimpleNamespace

import pytest

from genkit.testing import LawBroken, check_observer


class Counts:
    def __init__(self) -> None:
        self.steps = 0

    def genkit_step(self, run, step) -> None:
        self.steps += 1


def test_an_observer_that_looks_keeps_the_laws() -> None:
    observer = Counts()
    check_observer(observer)
    assert observer.steps == 12 + 5 + 12


class Writes:
    def genkit_step(self, run, step) -> None:
        step.raw_logits.data[0, 0] += 1


class Raises:
    def genkit_step(self, run, step) -> None:
        raise KeyError("oops")


class Later:
    async def genkit_step(self, run, step) -> None:
        """Nobody waits for it."""


class Yields:
    def genkit_run_failed(self, run, error):
        yield error


class RaisesAtAFailure:
    def genkit_run_failed(self, run, error) -> None:
        raise KeyError("oops")


class ForgetsStops:
    def genkit_step(self, run, step) -> None:
        step.stops = (None,) * len(step.stops)


class TakesLogits:
    def genkit_step(self, run, step) -> None:
        step.logits = None


class LaterWhenCalled:
    async def __call__(self, run, step) -> None:
        """Nobody waits for it."""


class ForgetsAFailedRun:
    """Counts what is open, and takes care of what has ended well only."""

    running = False

    def genkit_run_started(self, run) -> None:
        assert not self.running
        self.running = True

    def genkit_run_finished(self, run, result) -> None:
        self.running = False


@pytest.mark.parametrize(
    ("observer", "broken"),
    [
        (Later(), "works when it is called"),
        (Yields(), "works when it is called"),
        (RaisesAtAFailure(), "lets a run fail"),
        (SimpleNamespace(genkit_step=LaterWhenCalled()), "works when it is called"),
        (ForgetsStops(), "changes nothing"),
        (TakesLogits(), "changes nothing"),
        (ForgetsAFailedRun(), "begins anew"),
        (Writes(), "changes nothing"),
        (Raises(), "runs without an error"),
        (object(), "has a function"),
    ],
)
def test_a_broken_observer_is_caught_by_its_law(observer, broken: str) -> None:
    with pytest.raises(LawBroken) as caught:
        check_observer(observer)
    assert caught.value.law == broken


def test_a_class_is_refused_before_any_law() -> None:
    with pytest.raises(TypeError, match=r"^Counts is a class; give an object: Counts\(\)"):
        check_observer(Counts)
