"""REP-06: no option is accepted and then without effect.

For every option of every built-in processor, sampler and stop criterion two sets of options that
differ in nothing else are tried on the runs of hand-made models, until one gives another answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import pytest
import torch

from genkit import Kit, Pipeline
from genkit.components.base import Component, LogitsProcessor
from genkit.components.processors.nested_options import NestedOptions
from genkit.components.samplers import Categorical, Greedy
from genkit.components.stopping import Eos
from genkit.errors import EmptyRowError, ModelOutputError
from genkit.testing import ByteTokenizer, ScriptedModel

Options = dict[str, Any]

KIT = Kit(entry_points=False)
KINDS = ("logits_processor", "sampler", "stop_criterion")
PARTS: dict[str, type[Component]] = {
    entry.name: entry.part_class for kind in KINDS for entry in KIT.parts(kind)
}

A, B, C, D, E = b"abcde"


def a_or_b(row: int, token_ids: torch.Tensor) -> list[int]:
    return [A, B]


def c_or_d(row: int, token_ids: torch.Tensor) -> list[int]:
    return [C, D]


# For each part: options, and for each of some options another value. A dot leads to an option
# inside another one; in a list, inside its first item.
GREEN = {"type": "green_list", "ratio": 0.5, "bias": 4.0}
SELF = {**GREEN, "seeding": "selfhash", "context_width": 2}
SYNTHID = {"type": "synthid", "keys": (3, 5, 8), "ngram_len": 2}
TABLE: dict[str, list[tuple[Options, Options]]] = {
    # Processors.
    "allowed_tokens": [({"token_ids": (A, B)}, {"token_ids": (A, C)})],
    "bad_words": [
        ({"token_ids": ((A,),)}, {"token_ids": ((B,),), "strings": ("b",)}),
        ({"token_ids": ((A, B), (E,))}, {"scope": "output", "spare_end_tokens": True}),
    ],
    "begin_suppress_tokens": [
        ({"token_ids": (A, B)}, {"token_ids": (C,), "begin_index": 1, "num_tokens": 3})
    ],
    "dry": [
        (
            {"multiplier": 2.0, "allowed_length": 1, "breakers": ()},
            {
                "multiplier": 0.1,
                "base": 9.0,
                "allowed_length": 2,
                "window": 3,
                "breakers": ("b",),
                "breaker_ids": ((A,),),
            },
        )
    ],
    "dynamic_temperature": [({"low": 0.5, "high": 3.0}, {"low": 2.0, "high": 0.6, "exponent": 9})],
    "epsilon": [({"epsilon": 0.2}, {"epsilon": 0.01, "min_keep": 5})],
    "eta": [({"epsilon": 0.2}, {"epsilon": 0.0001, "min_keep": 5})],
    "forced_bos": [({"token_id": A}, {"token_id": B, "place": "second_of_text"})],
    "forced_eos": [({}, {"token_ids": (A,)})],
    "frequency_penalty": [
        ({"penalty": 0.6}, {"penalty": 0.1, "presence": 2.0, "scope": "all", "window": 1})
    ],
    "length_decay": [({"start": 1, "factor": 1.5}, {"start": 5, "factor": 3.0, "token_ids": (A,)})],
    "min_length": [({"limit": 9}, {"limit": 3, "token_ids": (A,)})],
    "min_new_tokens": [({"limit": 6}, {"limit": 1, "token_ids": (A,), "if_none_left": "allow"})],
    "min_p": [({"min_p": 0.5}, {"min_p": 0.01, "min_keep": 5})],
    "no_repeat_ngram": [({"n": 2}, {"n": 1, "scope": "output"})],
    "prefix_allowed_tokens": [
        ({"function": a_or_b}, {"function": c_or_d, "if_none_left": "allow"})
    ],
    "presence_penalty": [({"penalty": 2.0}, {"penalty": 0.1, "scope": "all", "window": 1})],
    "prompt_no_repeat_ngram": [({"n": 2}, {"n": 1})],
    "prompt_repetition_penalty": [({"penalty": 0.5}, {"penalty": 0.9})],
    "remove_invalid": [({}, {"minus_infinity": "lowest"})],
    "renormalize": [],
    "repetition_penalty": [
        (
            {"penalty": 1.3, "scope": "prompt"},
            {
                "penalty": 3.0,
                "scope": "all",
                "window": 1,
                "positive": "reciprocal",
                "base": "logprobs",
            },
        )
    ],
    "sequence_bias": [
        (
            {"sequences": ({"token_ids": (A, B), "bias": 4.0},)},
            {
                "sequences": ({"token_ids": (C,), "bias": -4.0},),
                "sequences.token_ids": (A, C),
                "sequences.bias": -4.0,
            },
        )
    ],
    "smoothing": [({"factor": 0.5}, {"factor": 3.0, "curve": 3.0})],
    "suppress_tokens": [({"token_ids": (A, B)}, {"token_ids": (C,)})],
    "tail_free": [({"z": 0.5}, {"z": 0.99})],
    "temperature": [({"temperature": 0.5}, {"temperature": 2.0})],
    "token_bias": [({"biases": {A: 4.0}}, {"biases": {A: -4.0}})],
    "top_a": [({"a": 0.9}, {"a": 0.01})],
    "top_h": [({"h": 0.9}, {"h": 0.3, "num_candidates": 2})],
    "top_k": [({"k": 2}, {"k": 4, "ties": "keep", "min_keep": 5})],
    "top_n_sigma": [({"n": 0.7}, {"n": 3.0, "deviation": "sample"})],
    "top_p": [
        ({"p": 0.5}, {"p": 0.9, "rule": "above<=p", "ties": "keep", "min_keep": 6}),
        ({"p": 0.6}, {"rule": "through<=p"}),
    ],
    "typical_p": [({"p": 0.5}, {"p": 0.9, "rule": "above<=p", "ties": "keep", "min_keep": 6})],
    "watermark": [
        (
            {"scheme": GREEN},
            {
                "scheme": SYNTHID,
                "scheme.ratio": 0.1,
                "scheme.bias": -4.0,
                "scheme.hashing_key": 7,
                "scheme.seeding": "selfhash",
            },
        ),
        ({"scheme": SELF}, {"scheme.context_width": 3}),
        (
            {"scheme": SYNTHID},
            {
                "scheme.keys": (4, 5, 8),
                "scheme.ngram_len": 3,
                "scheme.sampling_table_size": 99,
                "scheme.sampling_table_seed": 1,
                "scheme.context_history_size": 0,
                "scheme.skip_first_ngram_calls": True,
            },
        ),
    ],
    "xtc": [
        (
            {"probability": 0.5, "threshold": 0.125, "protected_ids": (A,)},
            {
                "probability": 1.0,
                "threshold": 0.3,
                "mode": "expectation",
                "comparison": ">",
                "ties": "keep",
                "min_keep": 5,
                "protected_ids": (B,),
                "protection": "skip_step",
            },
        )
    ],
    # Samplers.
    "adaptive_p": [({"target": 0.3}, {"target": 0.9, "decay": 0.1, "start": 1.0})],
    "categorical": [],
    "greedy": [],
    "mirostat": [
        ({"tau": 1.0, "eta": 0.2}, {"version": 1, "tau": 3.0, "eta": 2.0}),
        ({"version": 1}, {"huge_k": "keeps_one"}),
        ({"version": 1, "tau": 2.0}, {"num_estimated": 2}),
    ],
    # Stop criteria.
    "eos": [({}, {"token_ids": (A,)})],
    "low_confidence": [({"threshold": 0.4}, {"threshold": 0.9, "patience": 3})],
    "max_length": [({"limit": 8}, {"limit": 9})],
    "max_new_tokens": [({"limit": 3}, {"limit": 5})],
    "repeating": [
        ({"max_period": 2, "times": 2}, {"max_period": 3, "times": 3, "min_period": 2}),
    ],
    "stop_regex": [
        (
            {"patterns": ("ab+c",)},
            {"patterns": ("b.b",), "include": True, "longest": 3, "min_new_tokens": 5},
        )
    ],
    "stop_strings": [
        ({"strings": ("bc",)}, {"strings": ("cd",), "include": True, "min_new_tokens": 5})
    ],
    "stop_token_ids": [({"token_ids": (A,)}, {"token_ids": (B,)})],
    "time_limit": [({"seconds": 1e6}, {"seconds": 1e-9})],
}

EXCEPTIONS = {"type": "the name of the part, or of a group of options"}


# --- the runs ----------------------------------------------------------------------------


class Context(NamedTuple):
    """A run: what the model gives, after which prompt, and how tokens are chosen.

    Attributes:
        model: the end token is `e`.
        prompt: as text.
        seed: of the draws of processors and sampler; None: the sampler is greedy.
    """

    model: ScriptedModel
    prompt: str
    seed: int | None


NUM_STEPS = 12
CONTEXT_LENGTH = 15


def model(letters: torch.Tensor, forbidden: float = -math.inf) -> ScriptedModel:
    """Gives logits of the first letters of the alphabet, `[steps, letters]`, and no others."""
    logits = torch.full((len(letters), ByteTokenizer.vocab_size), forbidden)
    logits[:, A : A + letters.shape[1]] = letters
    return ScriptedModel(
        logits, eos_token_ids=[E], context_length=CONTEXT_LENGTH, tokenizer=ByteTokenizer()
    )


def says(text: str) -> torch.Tensor:
    """The logits of a model that says a text."""
    return 9.0 * torch.nn.functional.one_hot(torch.tensor([*text.encode()]) - A, 8).float()


def models() -> Iterator[ScriptedModel]:
    generator = torch.Generator().manual_seed(0)
    shape = NUM_STEPS, 8
    yield model(torch.randn(shape, generator=generator) * 2)
    yield model(torch.randn(shape, generator=generator))
    yield model(torch.randint(3, shape, generator=generator).float())  # with ties
    yield model(torch.tensor([[2.0, 1.5, 1.4, 0.3]]))
    yield model(torch.zeros(1, 8))  # shares of an eighth
    yield model(torch.rand(shape, generator=generator) * 1e-7, forbidden=0.0)
    yield model(says("abcabcabbbbcbcda"))
    yield model(says("aabbbcabababcabc"))
    yield model(torch.where(torch.arange(8) == E - A, 1.0, -math.inf)[None])  # nothing but the end
    yield model(torch.full((1, 8), -math.inf))  # nothing at all
    # Where a is divided by the penalty 1.3, it is just as good as h, which comes after it.
    rows = torch.full(shape, -math.inf)
    rows[:, 0] = torch.linspace(1.0, 2.0, NUM_STEPS)
    rows[:, 7] = rows[:, 0] / 1.3
    yield model(rows)


@cache
def contexts() -> list[Context]:
    return [
        Context(each, prompt, seed)
        for seed in (None, 0, 1)
        for prompt in ("abcab", "a")
        for each in models()
    ]


def answer(part: Component, context: Context) -> tuple[Any, ...]:
    """The tokens and the text of a run with the part, and why it ended."""
    parts: dict[str, Any] = {
        "sampler": Greedy() if context.seed is None else Categorical(),
        "stop_criteria": [Eos()],
    }
    match part.kind:
        case "logits_processor":
            parts["processors"] = [part]
        case "sampler":
            parts["sampler"] = part
        case "stop_criterion":
            parts["stop_criteria"] = [part]
    try:
        result = Pipeline(context.model, **parts).generate(
            list(context.prompt.encode()), seed=context.seed or 0
        )
    except (EmptyRowError, ModelOutputError):
        return ("nothing left",)
    return tuple(result.token_ids), result.text, result.finish_reason


def tell_apart(one: Component, other: Component) -> bool:
    """Whether there is a run that ends otherwise with the other part."""
    return any(answer(one, context) != answer(other, context) for context in contexts())


def changed(options: Options, path: str, value: Any) -> Options:
    """The options with another value of one of them."""
    name, _, rest = path.partition(".")
    if not rest:
        return {**options, name: value}
    inner = options[name]
    if isinstance(inner, tuple):
        return {**options, name: (changed(inner[0], rest, value), *inner[1:])}
    return {**options, name: changed(inner, rest, value)}


# --- the tests ---------------------------------------------------------------------------

CASES = [
    pytest.param(name, options, path, value, id=f"{name}-{path}")
    for name, rows in TABLE.items()
    for options, others in rows
    for path, value in others.items()
]


@pytest.mark.parametrize(("name", "options", "path", "value"), CASES)
def test_another_value_gives_another_answer(name: str, options: Options, path, value) -> None:
    part_class = PARTS[name]
    assert tell_apart(part_class(**options), part_class(**changed(options, path, value)))


def paths(options: Any, prefix: str = "") -> Iterator[str]:
    """Every option of a class, and those inside others."""
    for name, field in options.model_fields.items():
        yield prefix + name
        for inner in groups(field.annotation):
            yield from paths(inner, f"{prefix}{name}.")


def groups(annotation: Any) -> Iterator[type[NestedOptions]]:
    """The groups of options that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, NestedOptions):
        yield annotation
    for inner in get_args(annotation):
        yield from groups(inner)


def test_every_option_has_another_value_here() -> None:
    declared = {(name, path) for name, part in PARTS.items() for path in paths(part)}
    needed = {(name, path) for name, path in declared if path.split(".")[-1] not in EXCEPTIONS}
    tried = {(name, path) for name, rows in TABLE.items() for _, others in rows for path in others}
    assert tried == needed
    assert set(TABLE) == set(PARTS)
    assert ("watermark", "scheme.keys") in needed and ("sequence_bias", "sequences.bias") in needed


class Deaf(LogitsProcessor):
    """Has an option and does not look at it."""

    type: Literal["deaf"] = "deaf"
    strength: float = 1.0

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits - 2.0 * (torch.arange(logits.shape[-1]) == A)


def test_an_option_without_effect_is_noticed() -> None:
    assert tell_apart(Deaf(), PARTS["renormalize"]())  # the part itself has an effect
    assert not tell_apart(Deaf(strength=1.0), Deaf(strength=2.0))


@pytest.mark.parametrize("name", ["xtc", "mirostat"])
def test_the_same_options_give_the_same_answers(name: str) -> None:
    options = TABLE[name][0][0]
    assert not tell_apart(PARTS[name](**options), PARTS[name](**options))
