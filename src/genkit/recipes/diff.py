"""Where two recipes part, and what that means for the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from genkit.core.settings import plain
from genkit.recipes.commuting import exchange
from genkit.recipes.recipe import Recipe
from genkit.recipes.schema import LISTS, SECTIONS


class Difference(NamedTuple):
    """One place where two recipes part.

    Attributes:
        path: the place; parts of a list go by their type, the second of a type as `top_k#2`.
        first, second: the values there; None where a recipe has none.
        matters: whether the tokens can differ for it.
        reason: what the difference does, or why it does nothing.
    """

    path: str
    first: Any
    second: Any
    matters: bool
    reason: str


def diff(first: Recipe, second: Recipe) -> list[Difference]:
    """All differences, in the order of a recipe; recipes that mean the same have none that matter.

    The sources of values are not compared, nor how a value is written.
    """
    found: list[Difference] = []
    for section in SECTIONS:
        a, b = getattr(first, section), getattr(second, section)
        if section in LISTS:
            found += _lists(section, a, b)
        else:
            found += _parts(section, a, b)
    if first.seed != second.seed:
        found.append(Difference("seed", first.seed, second.seed, _draws(first, second), _SEED))
    return found


_SEED = "another seed draws other tokens; where nothing is drawn it does nothing"

_NO_MATTER = {
    ("backend", "device"): "where it is computed; results differ by rounding alone",
    ("backend", "provider"): "where it is computed; results differ by rounding alone",
    ("backend", "attention"): "how attention is computed; results differ by rounding alone",
    ("backend", "prefill_chunk"): "memory, not the answer",
    ("backend", "threads"): "speed, not the answer",
    ("backend", "compile"): "speed, not the answer",
}
"""Options for which the tokens do not differ, and why."""


def _draws(first: Recipe, second: Recipe) -> bool:
    return not first.sampler.type == second.sampler.type == "greedy"


def _parts(path: str, first: Any, second: Any) -> Iterator[Difference]:
    """Two parts in the same place."""
    if first.type != second.type:
        matters, reason = True, f"{_summary(first)} against: {_summary(second)}"
        if _is_exact_cache(path, first) and _is_exact_cache(path, second):
            matters, reason = False, "both caches are exact: the cost differs, not the answer"
        yield Difference(path, _shown(first), _shown(second), matters, reason)
        return
    for name, field in type(first).model_fields.items():
        a, b = plain(getattr(first, name)), plain(getattr(second, name))
        if a != b:
            reason = _NO_MATTER.get((path, name), field.description or "another option")
            matters = (path, name) not in _NO_MATTER and not _is_exact_cache(path, first)
            yield Difference(f"{path}.{name}", a, b, matters, reason)


def _is_exact_cache(path: str, part: Any) -> bool:
    return bool(path == "cache" and part.grade == "exact")


def _lists(section: str, first: Sequence[Any], second: Sequence[Any]) -> Iterator[Difference]:
    """Two lists of parts: what only one has, what differs, and what stands elsewhere."""
    a, b = _named(first), _named(second)
    for name, part in a.items():
        if name in b:
            yield from _parts(f"{section}.{name}", part, b[name])
        else:
            yield _lonely(section, name, part, is_first=True)
    for name, part in b.items():
        if name not in a:
            yield _lonely(section, name, part, is_first=False)
    yield from _moved(section, a, b)


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    """Parts by their type, and by its number where a type comes again."""
    seen: Counter[str] = Counter()
    named = {}
    for part in parts:
        seen[part.type] += 1
        count = seen[part.type]
        named[part.type if count == 1 else f"{part.type}#{count}"] = part
    return named


def _lonely(section: str, name: str, part: Any, is_first: bool) -> Difference:
    shown = _shown(part)
    matters, reason = True, _summary(part)
    if section == "processors" and part.is_neutral:
        matters, reason = False, "its options are neutral: it does nothing"
    return Difference(
        f"{section}.{name}",
        shown if is_first else None,
        None if is_first else shown,
        matters,
        reason,
    )


def _moved(section: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    """Every two parts of both lists whose order is another."""
    places = {name: i for i, name in enumerate(b)}
    common = [name for name in a if name in b]
    for one, other in combinations(common, 2):
        if places[one] < places[other]:
            continue
        if section == "processors":
            matters, reason = _exchange(a[one], a[other])
        else:
            matters, reason = False, "of two that are met with the same token the first is named"
        yield Difference(section, f"{one}, {other}", f"{other}, {one}", matters, reason)


def _exchange(first: Any, second: Any) -> tuple[bool, str]:
    if first.is_neutral or second.is_neutral:
        return False, "one of them does nothing"
    found = exchange(first, second)
    return found.matters, found.reason


def _shown(part: Any) -> dict[str, Any]:
    """A part with the options that are not its defaults."""
    fields = type(part).model_fields
    options = {name: getattr(part, name) for name in fields if name != "type"}
    chosen = {k: plain(v) for k, v in options.items() if v != fields[k].get_default()}
    return {"type": part.type, **chosen}


def _summary(part: Any) -> str:
    summary = type(part).summary().rstrip(".")
    return f"{summary[:1].lower()}{summary[1:]}"
