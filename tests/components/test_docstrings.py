"""Every part that changes, chooses or ends has a worked example, and it is true."""

from __future__ import annotations

import doctest
import sys
from typing import Any

import pytest

from genkit import Kit

KINDS = ("logits_processor", "sampler", "stop_criterion")
REGISTRY = Kit(entry_points=False).registry
PARTS = [
    (name, REGISTRY.part_class(kind, name))
    for kind in KINDS
    for name in sorted(REGISTRY.names(kind))
]


@pytest.mark.parametrize(("name", "part"), PARTS, ids=[name for name, _ in PARTS])
def test_the_example_in_a_docstring_is_true(name: str, part: Any) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    scope = vars(sys.modules[part.__module__])
    [found] = finder.find(part, name, globs=dict(scope))
    assert found.examples, "there is no example"
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        found, out=report.append
    )
    assert results.failed == 0, "".join(report)
