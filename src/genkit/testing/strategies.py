"""Hypothesis strategies for what parts are given: logits, prompts, histories, recipes, models.

They need the package `hypothesis`. Numbers come from a drawn seed, so that an example costs little;
an example becomes smaller by fewer rows and steps and by simpler kinds of row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import torch
from pydantic import BaseModel

from genkit.components.base import Component
from genkit.errors import GenkitError, MissingPackageError
from genkit.recipes.schema import LISTS, SECTIONS, VERSION
from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.laws.history import History, Row
from genkit.testing.tiny_model import TinyModel
from genkit.text.tokenizer import Tokenizer

try:
    from hypothesis import strategies as st
except ImportError:
    raise MissingPackageError(
        "hypothesis", "pip install hypothesis", "genkit.testing.strategies"
    ) from None

if TYPE_CHECKING:
    from genkit.kit import Kit

__all__ = [
    "architectures",
    "histories",
    "logits",
    "prompts",
    "recipes",
    "tiny_models",
]

Strategy = st.SearchStrategy[Any]

_SEEDS = st.integers(0, 2**32 - 1)
_DTYPES = st.sampled_from([torch.float32, torch.float64])


# Logits. Each kind of row makes float64 [vocab] from a generator; simple ones come first.


def _ties(generator: torch.Generator, size: int) -> torch.Tensor:
    return torch.randint(-2, 3, (size,), generator=generator).double()


def _spread(generator: torch.Generator, size: int) -> torch.Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64) * 3


def _equal(generator: torch.Generator, size: int) -> torch.Tensor:
    return _spread(generator, 1).expand(size).clone()


def _with_holes(generator: torch.Generator, size: int) -> torch.Tensor:
    row = torch.where(
        torch.rand(size, generator=generator) < 0.5, -math.inf, _spread(generator, size)
    )
    row[_place(generator, size)] = 0.0
    return row


def _one_allowed(generator: torch.Generator, size: int) -> torch.Tensor:
    row = torch.full((size,), -math.inf, dtype=torch.float64)
    row[_place(generator, size)] = _spread(generator, 1)[0]
    return row


def _nearly_flat(generator: torch.Generator, size: int) -> torch.Tensor:
    return torch.rand(size, generator=generator, dtype=torch.float64) * 1e-6


def _peaked(generator: torch.Generator, size: int) -> torch.Tensor:
    row = _spread(generator, size)
    row[_place(generator, size)] = 60.0
    return row


def _huge(generator: torch.Generator, size: int) -> torch.Tensor:
    return _spread(generator, size).clamp(-3, 3) * (1e4 / 3)


def _zeros_of_both_signs(generator: torch.Generator, size: int) -> torch.Tensor:
    signs = torch.randint(0, 2, (size,), generator=generator).double() * 2 - 1
    return signs * torch.randint(0, 2, (size,), generator=generator)


def _place(generator: torch.Generator, size: int) -> int:
    return int(torch.randint(0, size, (), generator=generator))


_RowKind = Callable[[torch.Generator, int], torch.Tensor]
_KINDS: tuple[_RowKind, ...] = (
    _ties,
    _spread,
    _equal,
    _with_holes,
    _one_allowed,
    _nearly_flat,
    _peaked,
    _huge,
    _zeros_of_both_signs,
)


def _make_logits(
    kinds: Sequence[_RowKind], size: int, seed: int, dtype: torch.dtype
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([kind(generator, size) for kind in kinds]).to(dtype)


def logits(
    vocab_size: int = 12, batch: int | None = None, *, max_batch: int = 4
) -> st.SearchStrategy[torch.Tensor]:
    """Logits `[batch, vocab]` on the CPU, float32 or float64, without NaN and +inf.

    Rows have ties, forbidden tokens, a single allowed token, a spread of 1e-6, a peak, magnitudes
    of 1e4, zeros of both signs. Each row has an allowed token at least.

    Args:
        vocab_size: width.
        batch: number of rows; by default 1 to `max_batch`.
        max_batch: the most rows where `batch` does not say.
    """
    least, most = (1, max_batch) if batch is None else (batch, batch)
    kinds = st.lists(st.sampled_from(_KINDS), min_size=least, max_size=most)
    return st.builds(_make_logits, kinds, st.just(vocab_size), _SEEDS, _DTYPES)


# Prompts and histories.


def prompts(
    vocab_size: int = 12,
    *,
    max_rows: int = 3,
    max_tokens: int = 5,
    favoured: Sequence[int] = (),
) -> st.SearchStrategy[list[list[int]]]:
    """A batch of prompts of different lengths, as token ids; repeats are common.

    Args:
        vocab_size: ids are below it.
        max_rows: the most prompts; one at least.
        max_tokens: the most ids of a prompt; one at least.
        favoured: ids that come more often.
    """
    prompt = st.lists(_ids(vocab_size, favoured), min_size=1, max_size=max_tokens)
    return st.lists(prompt, min_size=1, max_size=max_rows)


def histories(
    vocab_size: int = 12,
    *,
    tokenizer: Tokenizer | None = None,
    eos_token_ids: Sequence[int] = (1,),
    favoured: Sequence[int] = (),
    max_rows: int = 3,
    max_steps: int = 4,
) -> st.SearchStrategy[History]:
    """Runs that have happened: ragged prompts, generated ids with repeats, logits of each step.

    ``history.state(step)`` is the `GenerationState` before a step, ``history.logits(step)`` what
    the token of that step is chosen from.

    Args:
        vocab_size: width of the logits.
        tokenizer, eos_token_ids: the model's.
        favoured: ids that come more often, besides the end tokens.
        max_rows, max_steps: the most rows and steps; one at least of each.
    """
    ids = _ids(vocab_size, (*favoured, *eos_token_ids))
    batches = prompts(vocab_size, max_rows=max_rows, favoured=favoured)

    @st.composite
    def history(draw: st.DrawFn) -> History:
        num_steps = draw(st.integers(1, max_steps))
        dtype, seed = draw(_DTYPES), draw(_SEEDS)
        rows = []
        for i, prompt in enumerate(draw(batches)):
            kind = draw(st.sampled_from(_KINDS))
            token_ids = draw(st.lists(ids, min_size=num_steps, max_size=num_steps))
            values = _make_logits([kind] * num_steps, vocab_size, seed + i, dtype)
            rows.append(Row(tuple(prompt), tuple(token_ids), values, seed + i, sample=i % 2))
        return History(tuple(rows), frozenset(eos_token_ids), tokenizer)

    return history()


def _ids(vocab_size: int, favoured: Sequence[int]) -> st.SearchStrategy[int]:
    anything = st.integers(0, vocab_size - 1)
    inside = [token_id for token_id in favoured if 0 <= token_id < vocab_size]
    return st.one_of(st.sampled_from(inside), anything) if inside else anything


# Recipes.


def recipes(
    kit: Kit, options: Mapping[str, Strategy] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """Recipes that the kit accepts, as plain data: ``kit.recipe(data)`` reads them.

    Parts come from everything that the kit has registered, and their options from the types and
    bounds that their classes declare. A part whose options cannot be drawn in that way, or whose
    class cannot be imported, is in no recipe unless `options` says how it is made.

    Args:
        kit: whose parts are used.
        options: for the name of a part a strategy of mappings of its options, in place of the
            drawn ones.
    """
    own = options or {}
    sections: dict[str, Strategy] = {"version": st.just(VERSION)}
    optional: dict[str, Strategy] = {"seed": st.none() | st.integers(0, 2**64 - 1)}
    for key, kind in SECTIONS.items():
        parts = [
            part
            for entry in kit.parts(kind)
            if (part := _part_data(entry.name, entry, own.get(entry.name))) is not None
        ]
        if not parts:
            continue
        one = st.one_of(parts)
        if key in LISTS:
            optional[key] = st.lists(one, max_size=3, unique_by=lambda part: part["type"])
        else:
            (sections if key == "backend" else optional)[key] = one
    recipe = st.fixed_dictionaries(sections, optional=optional)
    return recipe.filter(lambda data: _accepted(lambda: kit.recipe(data)))


def _part_data(name: str, entry: Any, options: Strategy | None) -> Strategy | None:
    """Mappings for one part; None if it is not known how to make one."""
    try:
        part_class: type[Component] = entry.part_class
    except GenkitError:
        return None
    drawn = _options(part_class) if options is None else options
    if drawn is None:
        return None
    valid = drawn.filter(lambda chosen: _accepted(lambda: part_class(**chosen)))
    return valid.map(lambda chosen: {"type": name, **chosen})


def _options(part_class: type[BaseModel]) -> Strategy | None:
    """Mappings of options by their declared types; None where one is needed and of another type."""
    required: dict[str, Strategy] = {}
    optional: dict[str, Strategy] = {}
    for name, field in part_class.model_fields.items():
        values = _values(field.annotation, field.metadata)
        if name == "type":
            continue
        if values is not None:
            (required if field.is_required() else optional)[name] = values
        elif field.is_required():
            return None
    # An optional text means something in particular (a device, a path), which no type tells.
    known = {name: each for name, each in optional.items() if not _is_text(part_class, name)}
    return st.fixed_dictionaries(required, optional=known)


def _is_text(part_class: type[BaseModel], name: str) -> bool:
    annotation = part_class.model_fields[name].annotation
    return str in (annotation, *get_args(annotation))


def _values(annotation: Any, metadata: Sequence[Any] = ()) -> Strategy | None:
    """Values of a declared type within declared bounds; None for a type that is not known here."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return st.booleans()
    if annotation in (int, float):
        return _numbers(annotation, metadata)
    if annotation is str:
        return _texts(metadata)
    if annotation is type(None):
        return st.none()
    if origin is Annotated:
        return _values(arguments[0], arguments[1:])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _nested(annotation)
    if origin is dict:
        keys, items = map(_values, arguments)
        return None if keys is None or items is None else st.dictionaries(keys, items, max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        members = [_values(member, metadata) for member in arguments]
        known = [each for each in members if each is not None]
        return st.one_of(known) if known else None
    if origin in (tuple, list) and arguments:
        items = _values(arguments[0])
        return None if items is None else st.lists(items, min_size=1, max_size=3)
    return None


def _texts(metadata: Sequence[Any]) -> Strategy:
    """Texts; where a class states a pattern, such as match it."""
    patterns = [each.pattern for each in _flat(metadata) if getattr(each, "pattern", None)]
    if patterns:
        return st.from_regex(patterns[0], fullmatch=True, alphabet="abcXYZ.:")
    return st.text("abcXYZ .", min_size=1, max_size=6)


def _flat(metadata: Sequence[Any]) -> list[Any]:
    """Constraints, those inside a `Field` of an annotation included."""
    return [inner for each in metadata for inner in (each, *getattr(each, "metadata", ()))]


def _nested(model: type[BaseModel]) -> Strategy | None:
    """Mappings for a group of options, with the type that chooses it where it has one."""
    drawn, field = _options(model), model.model_fields.get("type")
    if drawn is None or field is None:
        return drawn
    return drawn.map(lambda options: {"type": field.default, **options})


def _numbers(annotation: type, metadata: Sequence[Any]) -> Strategy:
    """Whole or real numbers; where a class states no bound, from 0.1 or 0 to 100."""
    bounds: dict[str, Any] = {}
    for each in _flat(metadata):
        bounds |= {name: getattr(each, name) for name in _BOUNDS if hasattr(each, name)}
    least, most = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if annotation is int:
        least = 0 if least is None else least + ("gt" in bounds)
        most = max(least, 100) if most is None else min(most - ("lt" in bounds), least + 100)
        return st.integers(least, most)
    return st.floats(
        0.1 if least is None else least,
        max(least or 0, 100.0) if most is None else most,
        exclude_min="gt" in bounds,
        exclude_max="lt" in bounds and most is not None,
        allow_subnormal=False,
    )


_BOUNDS = ("ge", "gt", "le", "lt")


def _accepted(make: Callable[[], object]) -> bool:
    try:
        make()
    except GenkitError:
        return False
    return True


# Models.


def architectures(vocab_size: int = ByteTokenizer.vocab_size) -> st.SearchStrategy[dict[str, Any]]:
    """Options of `TinyModel`: heads, positions, windows, seeds of weights.

    Pairs of heads include 8 and 2: with 9 and 3 some permutations of heads cannot show. Head
    dimensions differ from hidden size by heads.

    Args:
        vocab_size: of all of them.
    """
    heads = st.sampled_from([(8, 2), (4, 1), (4, 4), (9, 3)])
    return st.builds(
        lambda pair, **options: {
            "num_heads": pair[0], "num_kv_heads": pair[1], "vocab_size": vocab_size, **options
        },
        heads,
        num_layers=st.integers(1, 3),
        head_dim=st.sampled_from([6, 2, 10]),
        positions=st.sampled_from(["rotary", "learned"]),
        window=st.sampled_from([None, 2, 5]),
        seed=st.integers(0, 3),
    )  # fmt: skip


def tiny_models(vocab_size: int = ByteTokenizer.vocab_size) -> st.SearchStrategy[TinyModel]:
    """Models of any of `architectures`; the same object for the same options."""
    return architectures(vocab_size).map(
        lambda options: _tiny_model(tuple(sorted(options.items(), key=lambda item: item[0])))
    )


@lru_cache(maxsize=64)
def _tiny_model(options: tuple[tuple[str, Any], ...]) -> TinyModel:
    return TinyModel(**dict(options))
