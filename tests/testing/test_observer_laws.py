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
    assert observer.steps == 12


class Writes:
    def genkit_step(self, run, step) -> None:
        step.raw_logits.data[0, 0] += 1


class Raises:
    def genkit_step(self, run, step) -> None:
        raise KeyError("oops")


@pytest.mark.parametrize(
    ("observer", "broken"),
    [
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
