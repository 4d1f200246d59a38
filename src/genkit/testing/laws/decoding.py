"""The laws of decoding: what holds for every model, cache manager and set of parts.

Each law goes two ways to the same tokens and compares them. `LAWS` lists them; they are plain
functions of a pipeline and a case, so that `genkit verify` tries them on a real model and
`genkit.testing.check_cache_manager` and its like on generated ones.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from genkit.components.caches import NoCache
from genkit.components.samplers import Categorical, Greedy
from genkit.decoders.autoregressive import Autoregressive
from genkit.errors import FAILURES, PartError
from genkit.pipeline import Pipeline
from genkit.testing.laws.case import Case, Prompt
from genkit.testing.laws.comparison import Comparison
from genkit.testing.laws.disturbances import (
    GoingBack,
    InPieces,
    Rearranged,
    Shuffling,
    Spoiling,
    Watching,
)
from genkit.testing.laws.finding import Finding
from genkit.testing.laws.law import EXACT, Law, capabilities
from genkit.testing.laws.shifted import Shifted
from genkit.testing.laws.trace import Trace, add_step, new_traces, trace_run
from genkit.testing.laws.variant import variant_of

_FEW_TOKENS = 2  # the first logits show what was computed by another model
_JOIN_TIMEOUT = 600.0  # seconds; a thread that never ends must not stop the test for good


def cached_is_uncached(pipeline: Pipeline, case: Case) -> Finding:
    """With the cache the same as computing everything anew at each step."""
    return _compare(pipeline, case, pipeline, _without_cache(pipeline), "cached and uncached")


def any_split_of_the_prompt(pipeline: Pipeline, case: Case) -> Finding:
    """What is fed may come in pieces of any sizes."""
    plain = variant_of(pipeline, decoder=Autoregressive())
    in_pieces = variant_of(pipeline, decoder=InPieces(case.random()))
    return _compare(pipeline, case, in_pieces, plain, "in pieces and at once")


def crop_then_refill(pipeline: Pipeline, case: Case) -> Finding:
    """Cropping the cache and feeding again what was cropped changes nothing."""
    plain = variant_of(pipeline, decoder=Autoregressive())
    going_back = variant_of(pipeline, decoder=GoingBack(case.random()))
    return _compare(pipeline, case, going_back, plain, "cropped and never cropped")


def reordered_is_never_otherwise(pipeline: Pipeline, case: Case) -> Finding:
    """After `reorder` everything is as if those rows had been there from the beginning."""
    case = _decodable_together(pipeline, case)
    plain = trace_run(variant_of(pipeline, decoder=Autoregressive()), *_arguments(case))
    shuffling = Shuffling(case.random(), new_traces(case.prompts, case.seeds))
    try:
        trace_run(variant_of(pipeline, decoder=shuffling), *_arguments(case))
    except PartError as error:
        if not isinstance(error.__cause__, Rearranged):
            raise
    compare = Comparison.of(pipeline)
    found = Finding(cases=1)
    for trace in shuffling.all_traces:
        origin = next(t for t in plain if (t.prompt, t.seed) == (trace.prompt, trace.seed))
        undisturbed = origin if trace.stop else origin.first(len(trace.ids))
        found += compare.row(trace, undisturbed, "reordered and never reordered")
    return found


def reused_is_fresh(pipeline: Pipeline, case: Case) -> Finding:
    """What a manager keeps from earlier runs changes no later one."""
    fresh = _without_cache(pipeline)
    compare = Comparison.of(pipeline)
    first = trace_run(pipeline, *_arguments(case))
    anew = trace_run(fresh, *_arguments(case))
    found = compare.rows(first, anew, "in a first run and without a cache")
    again = trace_run(pipeline, *_arguments(case))
    found += replace(compare.rows(again, anew, "in a second run and without a cache"), cases=0)
    for what, prompts in _follow_ups(pipeline, case, first):
        later = prompts, case.seeds[: len(prompts)], case.num_tokens
        reused, anew = (trace_run(each, *later) for each in (pipeline, fresh))
        found += replace(compare.rows(reused, anew, f"{what}, reused and fresh"), cases=0)
    return found


def kept_for_its_own_model(pipeline: Pipeline, case: Case) -> Finding:
    """What a manager keeps is used for the model and the weights that computed it only."""
    model = Shifted(pipeline.model)
    one = variant_of(pipeline, model=model)
    other = variant_of(pipeline, model=Shifted(pipeline.model, 2))  # with the same manager
    case = replace(case, num_tokens=min(case.num_tokens, _FEW_TOKENS))
    alone = replace(case, prompts=case.prompts[:1], seeds=case.seeds[:1])
    found = Finding(cases=1)
    for what, each, offset in (
        ("for one model", one, 0),
        ("for the same one after its weights were changed", one, 1),
        ("for another model", other, 1),
    ):
        model.offset = offset
        for some in (case, alone):  # a manager may serve a single row in another way
            words = f"{what}, with the cache and without"
            compared = _compare(pipeline, some, each, _without_cache(each), words)
            found += replace(compared, cases=0)
    return found


def memory_is_the_runs_own(pipeline: Pipeline, case: Case) -> Finding:
    """Overwriting a cache that was handed out changes no other run."""
    plain = variant_of(pipeline, decoder=Autoregressive())
    spoiling = variant_of(pipeline, decoder=Spoiling(case.random()))
    alone = replace(case, prompts=case.prompts[:1], seeds=case.seeds[:1])
    what = "after another run's cache was overwritten and before"
    found = Finding(cases=1)
    for each in (case, alone):  # a manager may hand out a single row in another way
        first = trace_run(plain, *_arguments(each))
        later = trace_run(spoiling, *_arguments(each))
        found += replace(Comparison.of(pipeline).rows(later, first, what), cases=0)
    return found


def rounded_once(pipeline: Pipeline, case: Case) -> Finding:
    """What a cache holds for a column stays; a lossy cache may round it, once."""
    watching = Watching(case.random())
    trace_run(
        variant_of(pipeline, decoder=watching), case.prompts[:1], case.seeds[:1], case.num_tokens
    )
    found = Finding(cases=1, decisions=sum(map(len, watching.changes)))
    most = 1 if Comparison.of(pipeline).lossy else 0
    for i, changes in enumerate(watching.changes):
        if len(changes) and int(changes.max()) > most:
            words = (
                f"layer {i}, column {int(changes.argmax())}: what the cache holds has changed "
                f"{int(changes.max())} times (prompt {list(case.prompts[0])})"
            )
            found += Finding(mismatches=1, detail=words)
    return found


def batch_is_single(pipeline: Pipeline, case: Case) -> Finding:
    """Row i of a batch gives what its prompt gives alone."""
    case = _decodable_together(pipeline, case)
    together = trace_run(pipeline, *_arguments(case))
    alone = [
        trace_run(pipeline, [prompt], [seed], case.num_tokens)[0]
        for prompt, seed in zip(case.prompts, case.seeds, strict=True)
    ]
    return Comparison.of(pipeline).rows(together, alone, "in the batch and alone")


def rows_permuted(pipeline: Pipeline, case: Case) -> Finding:
    """Another order of the prompts gives the same results in that order."""
    case = _decodable_together(pipeline, case)
    order = list(range(len(case.prompts)))
    case.random().shuffle(order)
    if order == sorted(order):
        order.reverse()
    permuted = replace(
        case,
        prompts=tuple(case.prompts[i] for i in order),
        seeds=tuple(case.seeds[i] for i in order),
    )
    traces = trace_run(pipeline, *_arguments(case))
    return Comparison.of(pipeline).rows(
        trace_run(pipeline, *_arguments(permuted)), [traces[i] for i in order], "in another order"
    )


def any_padding(pipeline: Pipeline, case: Case) -> Finding:
    """A row gives the same beside longer rows, whatever the difference."""
    choices = case.random()
    prompt, seed = case.prompts[0], case.seeds[0]
    alone = trace_run(pipeline, [prompt], [seed], case.num_tokens)
    compare = Comparison.of(pipeline)
    found = Finding(cases=1)
    room = _room(pipeline, case) - len(prompt)
    for num_pads in {n for n in (1, choices.randint(2, 8), choices.randint(9, 20)) if n <= room}:
        longer = _random_prompt(pipeline, choices, len(prompt) + num_pads)
        padded = trace_run(pipeline, [prompt, longer], [seed, 0], case.num_tokens)
        what = f"with {num_pads} columns of padding and alone"
        found += replace(compare.rows(padded[:1], alone, what), cases=0)
    return found


def same_seed_same_tokens(pipeline: Pipeline, case: Case) -> Finding:
    """A row repeats under its seed in any company, and no global generator is read or moved.

    A pipeline that is greedy draws here instead.
    """
    if isinstance(pipeline.parts.sampler, Greedy):
        pipeline = variant_of(pipeline, sampler=Categorical())
    case = _decodable_together(pipeline, case)
    prompt, seed = case.prompts[0], case.seeds[0]
    before = _global_generators()
    [alone] = trace_run(pipeline, [prompt], [seed], case.num_tokens)
    company = case.random().choices(range(2**32), k=len(case.prompts))
    prompts = [prompt, *case.prompts[1:], prompt, prompt]
    seeds = [company[0], *company[1:], seed, seed]
    in_company = trace_run(pipeline, prompts, seeds, case.num_tokens)[-2:]
    again = trace_run(pipeline, [prompt], [seed], case.num_tokens)
    compare = Comparison.of(pipeline)
    found = compare.rows([*in_company, *again], [alone] * 3, "the same seed in other company")
    if _global_generators() != before:
        moved = "a global generator (torch, numpy or random) has moved during the run"
        found += Finding(mismatches=1, detail=moved)
    return found


def at_the_same_time(pipeline: Pipeline, case: Case) -> Finding:
    """Runs that go on at the same time give what each gives alone.

    They take turns step by step, and then run in threads.
    """
    arguments = [([p], [s], case.num_tokens) for p, s in zip(case.prompts, case.seeds, strict=True)]
    if len(arguments) == 1:
        arguments *= 2
    alone = [trace_run(pipeline, *each)[0] for each in arguments]
    compare = Comparison.of(pipeline)
    in_turns = compare.rows(_in_turns(pipeline, arguments), alone, "in turns and alone")
    in_threads = compare.rows(_in_threads(pipeline, arguments), alone, "in threads and alone")
    return in_turns + replace(in_threads, cases=0)


def streamed_is_whole(pipeline: Pipeline, case: Case) -> Finding:
    """The pieces of a streamed text, joined, are the text."""
    prompts, seeds = [list(prompt) for prompt in case.prompts], list(case.seeds)
    options: dict[str, Any] = {"seeds": seeds, "max_new_tokens": case.num_tokens}
    whole = pipeline.generate(prompts, **options)
    found = Finding(cases=1, decisions=len(prompts))
    texts = [""] * len(prompts)
    for chunk in pipeline.stream(prompts, **options):
        texts[chunk.row] += chunk.text
    for row, (text, result) in enumerate(zip(texts, whole, strict=True)):
        if text != result.text:
            words = f"row {row}: the stream gave {text!r}, the whole text is {result.text!r}"
            found += Finding(mismatches=1, detail=words)
    return found


_BATCH = frozenset({"reorder"})

LAWS: tuple[Law, ...] = (
    Law(
        "cached = uncached",
        "with the cache the same as computing everything anew at each step",
        cached_is_uncached,
        EXACT,
    ),
    Law(
        "any prefill split",
        "what is fed may come in pieces of any sizes",
        any_split_of_the_prompt,
        EXACT,
    ),
    Law(
        "crop then refill = never cropped",
        "cropping the cache and feeding again what was cropped changes nothing",
        crop_then_refill,
        EXACT,
        frozenset({"crop", "block"}),
    ),
    Law(
        "prefix reuse = fresh",
        "what a manager keeps from earlier runs changes no later one",
        reused_is_fresh,
        EXACT,
    ),
    Law(
        "kept for its own model",
        "what a manager keeps is used for the model and the weights that computed it only",
        kept_for_its_own_model,
        EXACT,
    ),
    Law(
        "memory is the run's own",
        "overwriting a cache that was handed out changes no other run",
        memory_is_the_runs_own,
        EXACT,
        frozenset({"layers", "crop"}),
    ),
    Law(
        "rounded once",
        "what a cache holds for a column stays; a lossy cache may round it, once",
        rounded_once,
        needs=frozenset({"layers"}),
    ),
    Law(
        "batch = single",
        "row i of a batch gives what its prompt gives alone",
        batch_is_single,
        needs=_BATCH,
    ),
    Law(
        "rows permuted = results permuted",
        "another order of the prompts gives the same results in that order",
        rows_permuted,
        needs=_BATCH,
    ),
    Law(
        "any left padding",
        "a row gives the same beside longer rows, whatever the difference",
        any_padding,
        needs=_BATCH | {"ragged"},
        needs_tokens=3,  # a prompt, a longer one, an answer
    ),
    Law(
        "same seed = same tokens",
        "a row repeats under its seed in any company, and no global generator is used",
        same_seed_same_tokens,
    ),
    Law(
        "reordered = never otherwise",
        "after rows are dropped, repeated or permuted, as if those had been there from the start",
        reordered_is_never_otherwise,
        needs=_BATCH,
    ),
    Law(
        "at the same time = alone",
        "runs that take turns, or run in threads, give what each gives alone",
        at_the_same_time,
    ),
    Law(
        "streamed = whole",
        "the pieces of a streamed text, joined, are the text",
        streamed_is_whole,
        needs_tokenizer=True,
    ),
)
"""Every law, in the order in which `genkit verify` lists them."""


def _without_cache(pipeline: Pipeline) -> Pipeline:
    return variant_of(pipeline, cache=NoCache(), decoder=Autoregressive())


def _arguments(case: Case) -> tuple[tuple[Prompt, ...], tuple[int, ...], int]:
    return case.prompts, case.seeds, case.num_tokens


def _compare(pipeline: Pipeline, case: Case, one: Pipeline, other: Pipeline, what: str) -> Finding:
    first, second = (trace_run(each, *_arguments(case)) for each in (one, other))
    return Comparison.of(pipeline).rows(first, second, what)


def _decodable_together(pipeline: Pipeline, case: Case) -> Case:
    """Rows of different lengths would run one after the other, and nothing would be compared."""
    return case if "ragged" in capabilities(pipeline) else case.of_equal_lengths()


def _room(pipeline: Pipeline, case: Case) -> int:
    """The longest prompt that leaves room for the case's answer."""
    length = pipeline.model.context_length
    return 10**6 if length is None else length - case.num_tokens


def _random_prompt(pipeline: Pipeline, choices: random.Random, length: int) -> Prompt:
    return tuple(choices.randrange(pipeline.model.vocab_size) for _ in range(length))


def _follow_ups(
    pipeline: Pipeline, case: Case, first: Sequence[Trace]
) -> list[tuple[str, list[Prompt]]]:
    """Prompts that share their beginnings with those that came before.

    A batch, of three kinds by `choice`, and single prompts, which a manager may serve otherwise.
    """
    choices = case.random()
    longest = _room(pipeline, case)
    texts = [trace.prompt + tuple(trace.ids) for trace in first]
    beginnings = [text[: choices.randint(1, len(text))] for text in texts]
    one, other = (_random_prompt(pipeline, choices, choices.randint(1, 4)) for _ in range(2))
    batch = [
        ("a next turn", [text + one for text in texts]),
        ("another ending", [beginning + one for beginning in beginnings]),
        ("only a beginning", beginnings),
    ][case.choice % 3]
    follow_ups = [
        batch,
        ("a single prompt", [texts[0] + one]),
        ("a single prompt with another ending", [beginnings[0] + other]),
    ]
    return [(what, [prompt[:longest] for prompt in prompts]) for what, prompts in follow_ups]


def _global_generators() -> list[bytes]:
    states = torch.get_rng_state().numpy(), np.random.get_state(), random.getstate()
    return [pickle.dumps(state) for state in states]


def _in_turns(pipeline: Pipeline, arguments: Sequence[Any]) -> list[Trace]:
    """Each run makes one step, then each the next."""
    traces = [new_traces(prompts, seeds)[0] for prompts, seeds, _ in arguments]
    with ExitStack() as stack, torch.no_grad():
        running = [
            (stack.enter_context(closing(_decode(pipeline, *each))), trace)
            for each, trace in zip(arguments, traces, strict=True)
        ]
        while running:
            running = [(steps, trace) for steps, trace in running if _one_more(steps, trace)]
    return traces


def _decode(pipeline: Pipeline, prompts: Any, seeds: Any, num_tokens: int) -> Any:
    return pipeline.decode(list(map(list, prompts)), seeds=seeds, max_new_tokens=num_tokens)


def _one_more(steps: Any, trace: Trace) -> bool:
    step = next(steps, None)
    if step is not None:
        add_step(step, [trace])
    return step is not None


def _in_threads(pipeline: Pipeline, arguments: Sequence[Any]) -> list[Trace]:
    """All runs begin at once, each in a thread of its own."""
    barrier = threading.Barrier(len(arguments))
    traces: list[Trace | None] = [None] * len(arguments)
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            barrier.wait(_JOIN_TIMEOUT)
            [traces[i]] = trace_run(pipeline, *arguments[i])
        except FAILURES as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_JOIN_TIMEOUT)
    if errors:
        raise errors[0]
    return [trace for trace in traces if trace is not None]
