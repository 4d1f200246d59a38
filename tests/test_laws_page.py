"""docs/laws.md lists every law, with its statement and what it needs, as the code has them."""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from genkit.testing.laws import context, exporter, observer
from genkit.testing.laws.decoder import DECODER_LAWS, SAME_AS_THE_PLAIN_LOOP
from genkit.testing.laws.decoding import LAWS
from genkit.testing.laws.law import Law
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.laws.part import PartLaw
from genkit.testing.laws.processor import PROCESSOR_LAWS
from genkit.testing.laws.sampler import SAMPLER_LAWS, draws_by_probability
from genkit.testing.laws.stop_criterion import STOP_CRITERION_LAWS

PAGE = Path(__file__).parent.parent / "docs" / "laws.md"

PARTS = {
    "Processors": PROCESSOR_LAWS,
    "Samplers": (*SAMPLER_LAWS, PartLaw(draws_by_probability)),
    "Stop criteria": STOP_CRITERION_LAWS,
}


def listed(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the page, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"the page has no section {heading!r}"
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def sentence(statement: str) -> str:
    """A statement as the page has it: a small letter first, and no full stop."""
    text = statement.removesuffix(".")
    return text[:1].lower() + text[1:]


def row_of(law: Law) -> list[str]:
    needs = [] if "lossy" in law.grades else ["a cache that is not lossy"]
    needs += [f"`{capability}`" for capability in sorted(law.needs)]
    needs += ["a tokenizer"] if law.needs_tokenizer else []
    needs += [f"a context of {law.needs_tokens} tokens"] if law.needs_tokens else []
    return [law.name, sentence(law.statement), ", ".join(needs)]


def rows_of(laws: Iterable[PartLaw], *, shared: bool) -> list[list[str]]:
    common = set.intersection(*({law.name for law in kind} for kind in PARTS.values()))
    return [[law.name, sentence(law.statement)] for law in laws if (law.name in common) is shared]


@pytest.mark.parametrize(
    ("heading", "laws"),
    [
        ("Decoding", LAWS),
        ("Models", MODEL_LAWS),
        ("Decoders", (SAME_AS_THE_PLAIN_LOOP, *DECODER_LAWS)),
    ],
)
def test_laws_of_a_pipeline_are_listed_with_what_they_need(
    heading: str, laws: tuple[Law, ...]
) -> None:
    assert listed(heading) == [row_of(law) for law in laws]


@pytest.mark.parametrize("heading", PARTS)
def test_laws_of_a_part_are_listed_by_kind(heading: str) -> None:
    assert listed(heading) == rows_of(PARTS[heading], shared=False)


def test_laws_of_all_parts_are_listed_once() -> None:
    every = {kind: rows_of(laws, shared=True) for kind, laws in PARTS.items()}
    for rows in every.values():
        assert sorted(listed("All three")) == sorted(rows)


@pytest.mark.parametrize(
    ("heading", "module", "laws"),
    [
        ("Contexts", context, context.CONTEXT_LAWS),
        ("Exporters", exporter, exporter.EXPORTER_LAWS),
        ("Observers", observer, observer.OBSERVER_LAWS),
    ],
)
def test_laws_that_are_no_objects_are_listed_by_name(
    heading: str, module: Any, laws: dict[str, str]
) -> None:
    raised = set(re.findall(r'LawBroken\(\s*"([^"]+)"', inspect.getsource(module)))
    assert laws.keys() == raised
    assert listed(heading) == [list(law) for law in laws.items()]
