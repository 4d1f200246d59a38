"""The page of one kind of part."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence

from genkit.components.base import Component
from genkit.core import contracts
from genkit.plugins.hookspecs import PART_HOOKS
from genkit.plugins.registry import PartEntry, label
from genkit.recipes.schema import SECTIONS
from reference.base_class import base_of
from reference.docstrings import says_something, text_of
from reference.examples import example, example_options, without_example
from reference.markdown import anchor, fence, prose, table
from reference.options import option_tables, undescribed
from reference.promises import properties, raised_by
from reference.undocumented import Undocumented

CALCULATING = {"logits_processor", "sampler"}
"""The kinds of parts that work out numbers, so that each has a formula."""

_LITERAL = re.compile(r"``(?P<inline>[^`]+)``|::\n(?P<block>(?:\n+ {4}.+)+)")
_RELATION = re.compile(r"\b[A-Za-z]\w*\b(?!\().*?(?:(?<!-)[<>]|=)")


def title(kind: str) -> str:
    """The heading of a kind's page: the plural, in words."""
    words = label(kind).capitalize()
    plurals = {"criterion": "criteria", "context": "contexts"}
    first, _, last = words.rpartition(" ")
    return f"{first} {plurals.get(last, f'{last}s')}".strip()


def file_name(kind: str) -> str:
    """The file of a kind's page."""
    return f"{title(kind).lower().replace(' ', '-')}.md"


def part_page(kind: str, entries: Sequence[PartEntry]) -> str:
    """The page of one kind: what all have in common, an index, and a section for each part.

    Raises:
        Undocumented: a part or an option says nothing of itself, there is no example of it, or
            no formula of what it works out.
    """
    lacks = [lack for entry in entries for lack in _lacks(entry)]
    if not entries:
        lacks.append(f"kind {label(kind)}: it has a page, and no part")
    if lacks:
        raise Undocumented(lacks)
    rows = [[f"[`{e.name}`](#{anchor(e.name)})", e.summary] for e in entries]
    base = base_of(entries[0].part_class)
    return "\n\n".join(
        [
            f"# {title(kind)}",
            _about(kind, base),
            table([label(kind), "what it does"], rows),
            *(_section(entry) for entry in entries),
            f"## What a {label(kind)} is",
            f"::: {base.__module__}.{base.__qualname__}",
        ]
    )


def _about(kind: str, base: type[Component]) -> str:
    contract = ""
    if hasattr(contracts, base.__name__):
        path = f"{contracts.__name__}.{base.__name__}"
        contract = f"How it is called, and what holds: [`{path}`](python.md#{path}).\n\n"
    return (
        f"{prose(text_of(base))}\n\n{contract}"
        f"Plugins add others with the hook [`{PART_HOOKS[kind]}`](hooks.md#{PART_HOOKS[kind]}). "
        "An option that is unknown, missing, of another type or out of range is an "
        "[`OptionError`](errors.md#optionerror)."
    )


def _section(entry: PartEntry) -> str:
    part_class = entry.part_class
    about = without_example(inspect.getdoc(part_class) or "")
    language = "yaml" if entry.kind in SECTIONS.values() else "shell"
    blocks = [f"## {entry.name}", prose(about), fence(language, example(entry))]
    blocks += option_tables(part_class, "It has no options.")
    notes = [*properties(part_class), *raised_by(part_class)]
    return "\n\n".join([*blocks, "\n".join(f"- {note}" for note in notes)])


def _lacks(entry: PartEntry) -> Iterator[str]:
    part_class = entry.part_class
    place = f"{label(entry.kind)} {entry.name}"
    if not says_something(part_class):
        yield f"{place}: its class has no docstring"
    elif entry.summary != part_class.summary():
        yield f"{place}: {entry.summary!r} is not the first line of its docstring"
    elif entry.kind in CALCULATING and not has_formula(part_class):
        yield f"{place}: its docstring has no formula, such as ``l' = l / T``"
    yield from undescribed(place, part_class)
    options = example_options(part_class)
    for name, found in part_class.model_fields.items():
        if found.is_required() and name not in options:
            yield (
                f"{place}: no example has the option {name!r}; make one in the docstring, "
                "or say Field(examples=[...])"
            )


def has_formula(part_class: type[Component]) -> bool:
    """Whether a literal of the docstring relates something named to something else."""
    text = inspect.getdoc(part_class) or ""
    literals = (match["inline"] or match["block"] for match in _LITERAL.finditer(text))
    return any(_RELATION.search(literal) for literal in literals)
