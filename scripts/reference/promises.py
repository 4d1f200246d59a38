"""What a part promises, what it needs, and what it raises."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from griffe import DocstringSectionKind

from genkit.components.base import Component
from genkit.core.contracts import CAPABILITIES, GRADES
from reference.base_class import base_of
from reference.docstrings import sections_of
from reference.markdown import anchor

_FLAGS = {
    "keeps_argmax": "The most probable token stays the most probable one (`keeps_argmax`).",
    "may_empty": "It may forbid every token that a row has left, which ends the run (`may_empty`).",
    "may_allow": "It may allow a token that was forbidden before it (`may_allow`).",
    "acts_on_allowed": "It looks at the logits of allowed tokens only (`acts_on_allowed`).",
}


def properties(part_class: type[Component]) -> Iterator[str]:
    """What its attributes say of it, a sentence each."""
    for flag, statement in _FLAGS.items():
        value = getattr(part_class, flag, False)
        if isinstance(value, property):
            yield f"{statement.removesuffix('.')}, depending on its options."
        elif value:
            yield statement
    if part_class.kind == "stop_criterion":
        yield f"A row that it ends has the finish reason `{part_class.finish_reason}`."  # type: ignore[attr-defined]
    grade = getattr(part_class, "grade", None)
    if grade is not None:
        yield f"Grade `{grade}`: it gives {GRADES[grade]}."
    for need in sorted(getattr(part_class, "requires", ())):
        yield f"It needs the capability `{need}`: {CAPABILITIES[need]}."


def raised_by(part_class: type[Component]) -> Iterator[str]:
    """What its methods say that they raise, each once."""
    found = dict.fromkeys(
        (str(raised.annotation), " ".join(raised.description.split()))
        for name in sorted(dir(part_class))
        for raised in _raises(part_class, name)
    )
    for error, when in found:
        names = " or ".join(f"[`{e}`](errors.md#{anchor(e)})" for e in error.split(", "))
        yield f"It raises {names}: {when}"


def _raises(part_class: type[Component], name: str) -> Iterator[Any]:
    method = inspect.getattr_static(part_class, name)
    method = getattr(method, "__func__", method)
    is_public = not name.startswith("_") or name == "__call__"
    if not (is_public and inspect.isfunction(method) and _is_own(part_class, name)):
        return
    for section in sections_of(method):
        if section.kind is DocstringSectionKind.raises:
            yield from section.value


def _is_own(part_class: type[Component], name: str) -> bool:
    """Whether a part says for itself what the method is: its kind's base is documented once."""
    classes = part_class.__mro__
    return any(name in vars(each) for each in classes[: classes.index(base_of(part_class))])
