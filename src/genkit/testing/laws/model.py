"""The contract of models, as laws: what a loop and a cache manager may rely on."""

from __future__ import annotations

from typing import Any

import torch

from genkit.core.contracts import CAPABILITIES, Model
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from genkit.pipeline import Pipeline
from genkit.testing.laws.attributes import attributes_of
from genkit.testing.laws.case import Case
from genkit.testing.laws.comparison import Comparison, largest_difference
from genkit.testing.laws.faults import Fault, FaultyCache
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import Law, capabilities
from genkit.testing.laws.trace import trace_run


def facts_are_true(pipeline: Pipeline, case: Case) -> Finding:
    """Vocabulary, end tokens, context length and capabilities are what the contract says."""
    model = pipeline.model
    unknown = sorted(model.supports - set(CAPABILITIES))
    outside = [i for i in model.eos_token_ids if not 0 <= i < model.vocab_size]
    length = model.context_length
    wrong = [
        words
        for words, is_wrong in (
            (f"vocab_size is {model.vocab_size}", model.vocab_size < 1),
            (f"end token {outside}: ids run to {model.vocab_size - 1}", bool(outside)),
            (f"context_length is {length}; no limit is None", length is not None and length < 1),
            (f"supports {unknown}: there is no such capability", bool(unknown)),
        )
        if is_wrong
    ]
    return Finding(cases=1, decisions=1, mismatches=len(wrong), detail="; ".join(wrong))


def logits_of_the_last_positions(pipeline: Pipeline, case: Case) -> Finding:
    """`model(ids, cache)` is `[batch, vocab]`; `last` is the same for each of `n` positions."""
    model, state = pipeline.model, _state(pipeline, case)
    ids = state.token_ids
    logits = model(ids, model.new_cache(state)).clone()
    found = Finding(cases=1) + _form(logits, (len(ids), model.vocab_size), model)
    if found.mismatches or not hasattr(model, "last"):
        return found
    # Positions at which every row has a token already: padding has logits that mean nothing.
    count = state.length - int(state.starts.max())
    cache = model.new_cache(state)
    several = model.last(ids, cache, count).clone()
    found += _form(several, (len(ids), count, model.vocab_size), model)
    if found.mismatches:
        return found
    for n in range(count):
        end = ids.shape[1] - n
        shorter = model(ids[:, :end], model.new_cache(state))
        what = f"`last(ids, cache, {count})[:, {count - 1 - n}]` and the logits after {end} columns"
        found += _same(pipeline, several[:, count - 1 - n], shorter, what)
    return found


def failed_forward_changes_nothing(pipeline: Pipeline, case: Case) -> Finding:
    """A forward that fails has not advanced the cache, and `crop(length)` restores it."""
    model, state = pipeline.model, _state(pipeline, case)
    ids = state.token_ids
    held = case.choice % ids.shape[1]  # 0: the prefill fails
    if held and "block" not in model.supports:
        held = ids.shape[1] - 1
    undisturbed = model.new_cache(state)
    cache = model.new_cache(state)
    for each in (undisturbed, cache):
        if held:
            model(ids[:, :held], each)
    watched = FaultyCache(undisturbed)
    expected = model(ids[:, held:], watched).clone()
    found = Finding(cases=1, decisions=1)
    if undisturbed.length != ids.shape[1]:
        words = f"after {ids.shape[1]} columns the cache's length is {undisturbed.length}"
        return found + Finding(mismatches=1, detail=words)
    faulty = FaultyCache(cache, fails_at=case.random().randrange(len(watched.asked)))
    try:
        model(ids[:, held:], faulty)
    except Fault:
        if cache.length != faulty.began:
            words = (
                f"a forward that failed has advanced the cache from {faulty.began} to "
                f"{cache.length} columns: {faulty.asked}"
            )
            return found + Finding(mismatches=1, detail=words)
    cache.crop(held)
    again = model(ids[:, held:], cache)
    what = f"after a failure among {faulty.asked} and `crop({held})`, and without it"
    return found + _same(pipeline, again, expected, what)


def model_stays_as_it_is(pipeline: Pipeline, case: Case) -> Finding:
    """A run changes no attribute of the model."""
    arguments = case.prompts, case.seeds, case.num_tokens
    trace_run(pipeline, *arguments)  # what is made at first use is there now
    before = attributes_of(pipeline.model)
    # Another length, if there is room for one, which must leave no trace.
    longer = case.prompts[0][:1] + case.prompts[0]
    length = pipeline.model.context_length
    longest = len(longer) if length is None else length - case.num_tokens
    trace_run(pipeline, [longer[:longest]], case.seeds[:1], case.num_tokens)
    after = attributes_of(pipeline.model)
    found = Finding(cases=1, decisions=1)
    changed = sorted(p for p in before | after if before.get(p) != after.get(p))
    if changed:
        words = f"a run changes the model's attributes {', '.join(changed[:5])}"
        found += Finding(mismatches=1, detail=words)
    return found


def fingerprint_stays(pipeline: Pipeline, case: Case) -> Finding:
    """The fingerprint is the same at each call, and a run moves it as little as the version."""
    first, again = _marks(pipeline.model), _marks(pipeline.model)
    trace_run(pipeline, case.prompts, case.seeds, case.num_tokens)
    after = _marks(pipeline.model)
    found = Finding(cases=1, decisions=1)
    for name, mark in first.items():
        if not (again[name] == mark == after[name]):
            words = f"`{name}` is {mark!r}, at the next call {again[name]!r}, after a run "
            found += Finding(mismatches=1, detail=f"{words}{after[name]!r}")
    return found


MODEL_LAWS: tuple[Law, ...] = (
    Law("facts are true", "vocabulary, end tokens and context length make sense", facts_are_true),
    Law(
        "logits of the last positions",
        "logits are [batch, vocab] in float32 at least, and `last` agrees with `__call__`",
        logits_of_the_last_positions,
    ),
    Law(
        "a failed forward changes nothing",
        "`advance` follows success, and after a failure `crop(length)` restores the cache",
        failed_forward_changes_nothing,
        needs=frozenset({"crop"}),
    ),
    Law(
        "the model stays as it is", "a run changes no attribute of the model", model_stays_as_it_is
    ),
    Law(
        "the fingerprint stays",
        "a model's `fingerprint()` and `weights_version` do not move while its weights do not",
        fingerprint_stays,
    ),
)
"""The laws of every model."""


def _marks(model: Any) -> dict[str, object]:
    """What a model says of its weights."""
    marks: dict[str, object] = {}
    if hasattr(model, "fingerprint"):
        marks["fingerprint()"] = model.fingerprint()
    if hasattr(model, "weights_version"):
        marks["weights_version"] = model.weights_version
    return marks


def _state(pipeline: Pipeline, case: Case) -> GenerationState:
    model = pipeline.model
    if getattr(model, "takes_one_row", False):
        case = case.of_one_row()
    elif "ragged" not in capabilities(pipeline):
        case = case.of_equal_lengths()
    limits = [len(prompt) + case.num_tokens for prompt in case.prompts]
    rng = RowRandom(case.seeds, [0] * len(case.seeds), model.device)
    return GenerationState(case.prompts, limits, rng, device=model.device)


def _form(logits: torch.Tensor, shape: tuple[int, ...], model: Model) -> Finding:
    found = Finding(decisions=1)
    wide = logits.dtype in (torch.float32, torch.float64)
    device = torch.device(model.device).type
    if tuple(logits.shape) == shape and wide and logits.device.type == device:
        return found
    words = (
        f"the logits are {logits.dtype} {list(logits.shape)} on {logits.device}, not float32 or "
        f"float64 {list(shape)} on {device}"
    )
    return found + Finding(mismatches=1, detail=words)


def _same(pipeline: Pipeline, one: torch.Tensor, other: torch.Tensor, what: str) -> Finding:
    one, other = one.detach().cpu(), other.detach().cpu()
    error = largest_difference(one, other)
    found = Finding(decisions=1, worst_logit_error=error)
    compare = Comparison.of(pipeline)
    tolerance = compare.tolerance(one, other)
    if error <= tolerance:
        return found
    if compare.lossy:
        return found + Finding(beyond=1)
    words = f"{what}: the logits differ by {error:.3g}, and rounding explains {tolerance:.2g}"
    return found + Finding(mismatches=1, detail=words)
