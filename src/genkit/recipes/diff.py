"""Where two recipes part, and what that means for the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import combinations, groupby
from math import prod
from typing import Any, NamedTuple

from genkit.core.settings import plain
from genkit.recipes.certain import num_decisive
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
    are_certain = _are_certain(first, second)
    for section in SECTIONS:
        a, b = getattr(first, section), getattr(second, section)
        if section == "processors":
            found += _processors(first, second)
        elif section in LISTS:
            found += _lists(section, a, b)
        elif section == "sampler" and are_certain:
            found += (_harmless(each, _CERTAIN) for each in _parts(section, a, b))
        else:
            found += _parts(section, a, b)
    if first.seed != second.seed:
        matters = not are_certain or _draws(first) or _draws(second)
        found.append(Difference("seed", first.seed, second.seed, matters, _SEED))
    return found


_SEED = "another seed draws other tokens; where nothing is drawn it does nothing"

_NEUTRAL = "its options are neutral: it does nothing"

_CERTAIN = "the same tokens under greedy, as both always take the most probable one"

_NO_MATTER = {
    ("backend", "device"): "where it is computed; results differ by rounding alone",
    ("backend", "provider"): "where it is computed; results differ by rounding alone",
    ("backend", "attention"): "how attention is computed; results differ by rounding alone",
    ("backend", "prefill_chunk"): "memory, not the answer",
    ("backend", "threads"): "speed, not the answer",
    ("backend", "compile"): "speed, not the answer",
}
"""Options for which the tokens do not differ, and why."""


_ORDERLESS = {
    ("allowed_tokens", "token_ids"),
    ("bad_words", "strings"),
    ("bad_words", "token_ids"),
    ("begin_suppress_tokens", "token_ids"),
    ("dry", "breaker_ids"),
    ("dry", "breakers"),
    ("eos", "token_ids"),
    ("forced_eos", "token_ids"),
    ("length_decay", "token_ids"),
    ("min_length", "token_ids"),
    ("min_new_tokens", "token_ids"),
    ("sequence_bias", "sequences"),
    ("stop_strings", "strings"),
    ("stop_token_ids", "token_ids"),
    ("suppress_tokens", "token_ids"),
    ("xtc", "protected_ids"),
}
"""Parts and their options that are lists and mean sets."""


def _are_certain(first: Recipe, second: Recipe) -> bool:
    """Whether both always take the most probable token."""
    return num_decisive(first) is not None and num_decisive(second) is not None


def _draws(recipe: Recipe) -> bool:
    """Whether a processor that decides which token is taken draws numbers itself."""
    decisive = recipe.processors[: num_decisive(recipe)]
    return any(part.type == "xtc" and not part.is_neutral for part in decisive)


def _processors(first: Recipe, second: Recipe) -> Iterator[Difference]:
    yield from _temperatures(first, second)
    first, second = _with_single_temperatures(first), _with_single_temperatures(second)
    idle: list[Set[str]] = [frozenset(), frozenset()]
    if _are_certain(first, second):
        idle = [_idle(first), _idle(second)]
    yield from _lists("processors", first.processors, second.processors, *idle)


def _idle(recipe: Recipe) -> Set[str]:
    """The names of the processors that do not decide which token is taken."""
    return frozenset(list(_named(recipe.processors))[num_decisive(recipe) :])


def _temperatures(first: Recipe, second: Recipe) -> Iterator[Difference]:
    """Temperatures in a row, where the other recipe does not write them so."""
    a, b = _products(first), _products(second)
    if a != b and any("*" in product for product in a + b):
        path, reason = "processors.temperature", "temperatures in a row multiply"
        yield Difference(path, ", ".join(a) or None, ", ".join(b) or None, False, reason)


def _products(recipe: Recipe) -> list[str]:
    """The temperatures of each row of them, as a product."""
    rows = groupby(recipe.processors, lambda part: part.type == "temperature")
    return [" * ".join(f"{_degrees(part):g}" for part in row) for is_row, row in rows if is_row]


def _with_single_temperatures(recipe: Recipe) -> Recipe:
    """The recipe with one temperature for each row of them."""
    parts: list[Any] = []
    for is_row, found in groupby(recipe.processors, lambda part: part.type == "temperature"):
        row = list(found)
        if is_row and len(row) > 1:
            # 0.1 * 0.3 is to equal 0.03; and a product may lie outside what one temperature may be.
            product = float(f"{prod(map(_degrees, row)):.12g}")
            row = [row[0].model_copy(update={"temperature": product})]
        parts += row
    return replace(recipe, processors=tuple(parts))


def _degrees(part: Any) -> float:
    return float(part.temperature)


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
            if _same_set(first, second, name):
                matters, reason = False, "the same ones, and their order means nothing"
            yield Difference(f"{path}.{name}", a, b, matters, reason)


def _same_set(first: Any, second: Any, name: str) -> bool:
    """Whether an option of two parts is a list that means a set, and that set is the same."""
    if (first.type, name) not in _ORDERLESS:
        return False
    a, b = getattr(first, name), getattr(second, name)
    return None not in (a, b) and set(a) == set(b)


def _is_exact_cache(path: str, part: Any) -> bool:
    return bool(path == "cache" and part.grade == "exact")


def _lists(
    section: str,
    first: Sequence[Any],
    second: Sequence[Any],
    idle_in_first: Set[str] = frozenset(),
    idle_in_second: Set[str] = frozenset(),
) -> Iterator[Difference]:
    """Two lists of parts: what only one has, what differs, and what stands elsewhere.

    What is idle in the recipes that have it makes no difference.
    """
    a, b = _named(first), _named(second)
    for name, part in a.items():
        if name not in b:
            yield _lonely(section, name, part, is_first=True, is_idle=name in idle_in_first)
            continue
        reason = _why_idle(section, part, b[name], name in idle_in_first & idle_in_second)
        for each in _parts(f"{section}.{name}", part, b[name]):
            yield each if reason is None else _harmless(each, reason)
    for name, part in b.items():
        if name not in a:
            yield _lonely(section, name, part, is_first=False, is_idle=name in idle_in_second)
    yield from _moved(section, a, b, idle_in_first & idle_in_second)


def _harmless(difference: Difference, reason: str) -> Difference:
    return difference._replace(matters=False, reason=reason)


def _why_idle(section: str, first: Any, second: Any, is_idle: bool) -> str | None:
    if section == "processors" and first.is_neutral and second.is_neutral:
        return _NEUTRAL
    return _CERTAIN if is_idle else None


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    """Parts by their type, and by its number where a type comes again."""
    seen: Counter[str] = Counter()
    named = {}
    for part in parts:
        seen[part.type] += 1
        count = seen[part.type]
        named[part.type if count == 1 else f"{part.type}#{count}"] = part
    return named


def _lonely(section: str, name: str, part: Any, is_first: bool, is_idle: bool) -> Difference:
    shown = _shown(part)
    reason = _why_idle(section, part, part, is_idle)
    return Difference(
        f"{section}.{name}",
        shown if is_first else None,
        None if is_first else shown,
        reason is None,
        reason or _summary(part),
    )


def _moved(
    section: str, a: dict[str, Any], b: dict[str, Any], idle: Set[str]
) -> Iterator[Difference]:
    """Every two parts of both lists whose order is another."""
    places = {name: i for i, name in enumerate(b)}
    common = [name for name in a if name in b]
    for one, other in combinations(common, 2):
        if places[one] < places[other]:
            continue
        if {one, other} <= idle:
            matters, reason = False, _CERTAIN
        elif section == "processors":
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
