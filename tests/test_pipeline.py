"""Pipelines over the tiny model: what must not change a token, and what a run leaves behind."""

import gc
import itertools
import random
import threading
import weakref
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch

from genkit.components.base import Context, StopCriterion
from genkit.components.caches import Dynamic, NoCache, Static
from genkit.components.processors import (
    MinP,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
)
from genkit.components.samplers import Categorical, Greedy
from genkit.components.stopping import Eos, MaxNewTokens, StopStrings
from genkit.errors import InputError, PartError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel

PROMPTS = ["hello", "a", "some longer prompt", "x" * 40]
CHAIN = [
    RepetitionPenalty(penalty=1.2),
    Temperature(temperature=0.9),
    TopK(k=40),
    TopP(p=0.95),
    MinP(min_p=0.01),
]
MODELS = {
    "rotary": TinyModel(),
    "learned": TinyModel(positions="learned"),
    "window": TinyModel(window=5),
    "window, learned": TinyModel(window=8, positions="learned"),
}
SAMPLERS = {"greedy": ([], Greedy()), "sampled": (CHAIN, Categorical())}


@pytest.fixture(params=MODELS.values(), ids=list(MODELS))
def model(request) -> TinyModel:
    return request.param


@pytest.fixture(params=SAMPLERS.values(), ids=list(SAMPLERS))
def make(request, model):
    """A pipeline over one of the models, greedy or sampled; rows end at different steps."""
    processors, sampler = request.param

    def make(**options) -> Pipeline:
        options.setdefault(
            "stop_criteria", [StopStrings(strings=["a", "B", "~"]), MaxNewTokens(limit=40)]
        )
        return Pipeline(model, processors=processors, sampler=sampler, **options)

    return make


def test_a_row_of_a_batch_is_the_prompt_alone(make) -> None:
    pipeline = make()
    together = pipeline.generate(PROMPTS, seed=3)
    assert together == [pipeline.generate(prompt, seed=3) for prompt in PROMPTS]
    if isinstance(pipeline.parts.sampler, Categorical):  # and rows did leave early
        assert len({result.num_generated_tokens for result in together}) > 1


def test_the_order_of_rows_does_not_matter(make) -> None:
    pipeline = make()
    expected = dict(zip(PROMPTS, pipeline.generate(PROMPTS, seeds=[1, 2, 3, 4]), strict=True))
    for order in ([3, 2, 1, 0], [2, 0, 3, 1]):
        prompts = [PROMPTS[i] for i in order]
        results = pipeline.generate(prompts, seeds=[i + 1 for i in order])
        assert results == [expected[prompt] for prompt in prompts]


def test_with_and_without_a_cache(make) -> None:
    assert make(cache=Dynamic()).generate(PROMPTS, seed=3) == make(cache=NoCache()).generate(
        PROMPTS, seed=3
    )


def test_streamed_text_is_the_whole_text(make) -> None:
    pipeline = make()
    results = pipeline.generate(PROMPTS, seed=3)
    texts = [""] * len(PROMPTS)
    finals = {}
    for chunk in pipeline.stream(PROMPTS, seed=3):
        texts[chunk.row] += chunk.text
        if chunk.result is not None:
            finals[chunk.row] = chunk.result
    assert texts == [result.text for result in results]
    assert [finals[row] for row in range(len(PROMPTS))] == results


def test_steps_have_the_tokens_of_the_results(make) -> None:
    pipeline = make()
    results = pipeline.generate(PROMPTS, seed=3)
    rows = [[] for _ in PROMPTS]
    ended = set()
    for step in pipeline.decode(PROMPTS, seed=3):
        assert not ended & set(step.rows.tolist())
        for row, token_id in zip(step.rows.tolist(), step.next_ids.tolist(), strict=True):
            rows[row].append(token_id)
        ended |= set(step.rows[step.finished].tolist())
    assert rows == [result.token_ids for result in results]
    assert ended == set(range(len(PROMPTS)))


def test_threads_on_one_pipeline_give_what_one_gives(make) -> None:
    pipeline = make()
    expected = pipeline.generate(PROMPTS, seed=3)
    barrier, found = threading.Barrier(6), {}

    def work(i: int) -> None:
        barrier.wait()
        prompt = PROMPTS[i % len(PROMPTS)]
        found[i] = (pipeline.generate(prompt, seed=3), pipeline.generate(PROMPTS, seed=3))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (single, batch) in found.items():
        assert single == expected[i % len(PROMPTS)]
        assert batch == expected
    assert len(found) == 6


@pytest.mark.parametrize("pads", [0, 1, 2, 5, 15, 33])
def test_any_left_padding(model, pads: int) -> None:
    """A companion that is longer by `pads` tokens pads the row by as much."""
    pipeline = Pipeline(model, stop_criteria=[MaxNewTokens(limit=12)])
    alone = pipeline.generate("abc", seed=0)
    first, _ = pipeline.generate(["abc", "z" * (3 + pads)], seed=0)
    assert first == alone


def test_without_ragged_rows_run_one_after_the_other() -> None:
    class Even(TinyModel):
        pass

    even = Even()
    even.supports = frozenset({"reorder"})
    pipeline = Pipeline(even, stop_criteria=[MaxNewTokens(limit=5)])
    rows = [step.rows.tolist() for step in pipeline.decode(["ab", "c"])]
    assert rows == [[0]] * 5 + [[1]] * 5
    both = pipeline.generate(["ab", "c"], seed=0)
    assert both == [pipeline.generate("ab", seed=0), pipeline.generate("c", seed=0)]
    together = [step.rows.tolist() for step in pipeline.decode(["ab", "cd"])]
    assert together == [[0, 1]] * 5  # rows of one length need no padding


def test_a_cache_without_reorder_runs_rows_one_after_the_other() -> None:
    plain = TinyModel()
    plain.supports = frozenset()
    pipeline = Pipeline(plain, stop_criteria=[MaxNewTokens(limit=2)])
    assert [s.rows.tolist() for s in pipeline.decode(["ab", "cd"])] == [[0], [0], [1], [1]]
    recomputing = Pipeline(plain, cache=NoCache(), stop_criteria=[MaxNewTokens(limit=2)])
    assert [s.rows.tolist() for s in recomputing.decode(["ab", "cd"])] == [[0, 1]] * 2


def flat(vocab_size: int = 64) -> ScriptedModel:
    return ScriptedModel(torch.zeros(1, vocab_size))


def sampled(**options) -> Pipeline:
    return Pipeline(
        flat(), sampler=Categorical(), stop_criteria=[MaxNewTokens(limit=12)], **options
    )


def test_same_seed_same_answer_and_other_seed_another() -> None:
    pipeline = sampled()
    assert pipeline.generate([1], seed=42) == pipeline.generate([1], seed=42)
    assert pipeline.generate([1], seed=42).token_ids != pipeline.generate([1], seed=43).token_ids


def test_a_seed_holds_whatever_seeds_the_others_have() -> None:
    """SEED-01, SEED-02."""
    pipeline = sampled()
    alone = pipeline.generate([1], seed=42)
    for other in (7, 42, 0):
        assert pipeline.generate([[1], [1]], seeds=[42, other])[0] == alone


def test_a_run_without_a_seed_reports_the_one_it_used() -> None:
    pipeline = sampled()
    results = [pipeline.generate([1]) for _ in range(5)]
    assert len({tuple(result.token_ids) for result in results}) == 5
    for result in results:
        assert pipeline.generate([1], seed=result.seed) == result
    batch = pipeline.generate([[1], [1]])
    assert batch[0].seed != batch[1].seed


def test_the_seed_of_the_call_beats_that_of_the_pipeline() -> None:
    """SEED-05."""
    pipeline = sampled(seed=1)
    assert pipeline.generate([1]).seed == 1
    assert pipeline.generate([1], seed=2) == sampled().generate([1], seed=2)


def test_samples_of_a_prompt_differ_and_repeat() -> None:
    pipeline = sampled()
    results = pipeline.generate([[1], [2]], seed=5, num_samples=3)
    assert [(r.prompt_ids, r.sample) for r in results] == [
        ([p], s) for p, s in itertools.product([1, 2], range(3))
    ]
    assert len({tuple(r.token_ids) for r in results[:3]}) == 3
    assert results[0] == pipeline.generate([1], seed=5)
    assert pipeline.generate([1], seed=5, num_samples=3) == results[:3]


def test_no_global_generator_is_read_or_moved() -> None:
    pipeline = sampled()
    torch.manual_seed(0)
    first = pipeline.generate([1], seed=3)
    torch.manual_seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert pipeline.generate([1], seed=3) == first
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())


def test_another_part_moves_no_draw() -> None:
    """Draws are named by their part, so a processor that removes nothing changes nothing."""
    kept = Pipeline(flat(), processors=[TopK(k=64)], sampler=Categorical(),
                    stop_criteria=[MaxNewTokens(limit=12)])  # fmt: skip
    assert kept.generate([1], seed=3) == sampled().generate([1], seed=3)


def test_plain_sampling_has_no_hidden_filter() -> None:
    """TRUNC-19: every token of a flat row appears."""
    pipeline = Pipeline(
        ScriptedModel(torch.zeros(1, 200), context_length=8000),
        sampler=Categorical(),
        stop_criteria=[MaxNewTokens(limit=4000)],
    )
    assert set(pipeline.generate([1], seed=0).token_ids) == set(range(200))


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the list is empty"),
        ([64], {}, "64 is no token id of this model; ids run from 0 to 63"),
        ([-1], {}, "-1 is no token id"),
        ([[1], [99]], {}, "prompt 1: prompt: 99 is no token id"),
        (3.5, {}, "found float"),
        (None, {}, "found NoneType"),
        ({"role": "user"}, {}, "found dict"),
        ("text", {}, "no tokenizer"),
        ([1], {"seed": -1}, "seed is a whole number from 0"),
        ([1], {"seed": 2**64}, "seed is a whole number from 0"),
        ([1], {"seed": 1.5}, "seed is a whole number"),
        ([1], {"seed": True}, "seed is a whole number"),
        ([1], {"seeds": [1, 2]}, "2 entries for 1 prompts"),
        ([1], {"seeds": [1], "seed": 1}, "either seed or seeds"),
        ([1], {"num_samples": 0}, "num_samples is a whole number, at least 1, found 0"),
        ([1], {"num_samples": "3"}, "num_samples is a whole number, at least 1, found '3'"),
        ([1], {"seeds": 5}, "seeds is a list"),
        ([[1], []], {}, "prompt 1: the prompt is empty"),
    ],
)
@pytest.mark.parametrize("call", ["generate", "decode", "stream"])
def test_bad_calls_fail_before_anything_is_computed(prompt, options, message, call) -> None:
    model = flat()
    pipeline = Pipeline(model, stop_criteria=[MaxNewTokens(limit=3)])
    with pytest.raises(InputError, match=message):
        getattr(pipeline, call)(prompt, **options)
    assert model.num_calls == 0


def test_max_new_tokens_of_the_call_replaces_the_limit_or_adds_one() -> None:
    pipeline = sampled()
    assert len(pipeline.generate([1], max_new_tokens=3).token_ids) == 3
    assert len(pipeline.generate([1], max_new_tokens=30).token_ids) == 30
    without = Pipeline(flat(), stop_criteria=[])
    assert len(without.generate([1], max_new_tokens=3).token_ids) == 3


def test_nothing_bounds_the_run() -> None:
    model = ScriptedModel(torch.zeros(1, 8), context_length=None)
    with pytest.raises(UnsupportedError, match="nothing bounds this run"):
        Pipeline(model).generate([1])


def test_a_bound_that_the_criterion_itself_never_enforces_still_ends_the_row() -> None:
    class Promise:
        name = "promise"

        def bound(self, num_prompt_tokens: int) -> int:
            return num_prompt_tokens + 4

        def __call__(self, state):
            return torch.zeros(len(state), dtype=torch.bool)

    result = Pipeline(flat(), stop_criteria=[Promise()]).generate([1, 2])
    assert len(result.token_ids) == 4 and result.finish_reason == "length"


@pytest.mark.parametrize(
    ("bound", "count"),
    [(lambda n: 2 * n, 8), (lambda n: max(n + 1, 20), 12), (lambda n: None, 24)],
)
def test_a_bound_may_be_any_function_of_the_prompts_length(bound, count: int) -> None:
    class Promise:
        def __call__(self, state):
            return torch.zeros(len(state), dtype=torch.bool)

    promise = Promise()
    promise.bound = bound
    model = ScriptedModel(torch.zeros(1, 64), context_length=32)
    pipeline = Pipeline(model, stop_criteria=[promise])
    assert pipeline.generate([1] * 8).num_generated_tokens == count
    if count == 12:
        assert pipeline.generate([1] * 25).num_generated_tokens == 1


def test_inside_inference_mode_everything_works() -> None:
    pipeline = Pipeline(MODELS["rotary"], processors=CHAIN, sampler=Categorical())
    expected = pipeline.generate("abc", seed=1, max_new_tokens=4)
    with torch.inference_mode():
        assert pipeline.generate("abc", seed=1, max_new_tokens=4) == expected


def test_a_backend_is_no_model_yet() -> None:
    from genkit import backends

    with pytest.raises(UnsupportedError, match="'pytorch' says how to load a model; load it"):
        Pipeline(backends.PyTorch(model="x"))


def test_missing_capabilities_are_named_before_the_first_token() -> None:
    class Needy(Dynamic):
        type: str = "needy"
        requires = frozenset({"layers"})

    model = ScriptedModel(torch.zeros(1, 8), supports=["crop"])
    with pytest.raises(UnsupportedError, match="the cache 'needy' needs .* this model .*layers: "):
        Pipeline(model, cache=Needy())


class Watcher:
    def __init__(self) -> None:
        self.events = []

    def genkit_run_started(self, run) -> None:
        self.events.append(("started", run.prompts))

    def genkit_step(self, run, step) -> None:
        self.events.append(("step", step.next_ids.tolist()))

    def genkit_run_finished(self, run, result) -> None:
        self.events.append(("finished", [r.token_ids for r in result]))

    def genkit_run_failed(self, run, error) -> None:
        self.events.append(("failed", type(error).__name__))


def test_an_observer_sees_the_whole_run() -> None:
    watcher = Watcher()
    model = ScriptedModel.of_ids([3, 1], 8)
    Pipeline(model, stop_criteria=[MaxNewTokens(limit=2)], observers=[watcher]).generate([5])
    assert watcher.events == [
        ("started", ((5,),)),
        ("step", [3]),
        ("step", [1]),
        ("finished", [[3, 1]]),
    ]


class Greedy:
    """Takes what it is shown."""

    def genkit_run_finished(self, run, result) -> None:
        result[0].token_ids.clear()
        result.clear()

    def genkit_run_failed(self, run, error) -> None:
        error.partial_results.clear()


def test_what_an_observer_does_to_results_nobody_else_sees() -> None:
    watcher = Watcher()
    model = ScriptedModel.of_ids([3, 1], 8)
    limit = MaxNewTokens(limit=2)
    pipeline = Pipeline(model, stop_criteria=[limit], observers=[Greedy(), watcher])
    assert pipeline.generate([5]).token_ids == [3, 1]
    assert watcher.events[-1] == ("finished", [[3, 1]])
    fails = Pipeline(model, processors=[at_step_one], observers=[Greedy()])
    with pytest.raises(PartError) as caught:
        fails.generate([5], max_new_tokens=2)
    assert [result.token_ids for result in caught.value.partial_results] == [[3]]


def at_step_one(state, logits):
    return logits if state.most_generated < 1 else logits[:, :1]


def test_an_observer_that_raises_is_named() -> None:
    class Broken:
        name = "broken"

        def genkit_step(self, run, step) -> None:
            raise ValueError("no")

    with pytest.raises(PartError, match="observer 'broken' raised ValueError in genkit_step: no"):
        Pipeline(flat(), observers=[Broken()], stop_criteria=[MaxNewTokens(limit=1)]).generate([1])


class Later:
    async def genkit_step(self, run, step):
        """Is never awaited."""


class Pieces:
    def genkit_step(self, run, step):
        yield step


@pytest.mark.parametrize(
    ("observers", "message"),
    [
        ([Watcher], r"observers.0 is a class; make an object of it: Watcher\(...\)"),
        ([Watcher(), "stats"], "observers.1 is 'stats', which watches nothing: .*genkit_step"),
        ([Later()], r"observers.0 \(Later\): genkit_step is an `async def`"),
        ([Pieces()], r"observers.0 \(Pieces\): genkit_step is a generator function"),
        (3, "observers is a list of parts, found 3"),
    ],
)
def test_an_observer_that_would_watch_nothing_is_refused(observers, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        Pipeline(TinyModel(), observers=observers)


class Stubborn(Watcher):
    """Raises in one of the hooks."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        self.name = "stubborn"
        setattr(self, hook, self.fail)

    def fail(self, *_) -> None:
        raise ValueError("no")


@pytest.mark.parametrize("hook", ["genkit_step", "genkit_run_finished"])
def test_what_had_been_generated_survives_an_observer_that_raises(hook: str) -> None:
    released = []

    class Noting(Dynamic):
        type: str = "noting"

        def release(self, cache, state):
            released.append(cache)

    watcher = Watcher()
    pipeline = Pipeline(
        ScriptedModel.of_ids([3, 1], 8),
        cache=Noting(),
        observers=[watcher, Stubborn(hook)],
        stop_criteria=[MaxNewTokens(limit=2)],
    )
    with pytest.raises(PartError, match=f"observer 'stubborn' raised ValueError in {hook}") as info:
        pipeline.generate([5])
    (result,) = info.value.partial_results
    assert result.token_ids == ([3] if hook == "genkit_step" else [3, 1])
    assert len(released) == 1
    assert watcher.events[-1] == ("failed", "PartError")


def test_an_observer_that_raises_on_a_failure_does_not_hide_it() -> None:
    watcher = Watcher()
    pipeline = Pipeline(
        flat(),
        processors=[at_step(1, ValueError("first"))],
        observers=[Stubborn("genkit_run_failed"), watcher],
    )
    with pytest.raises(PartError, match="raised ValueError: first") as info:
        pipeline.generate([1])
    assert "stubborn" in info.value.__notes__[0]
    assert watcher.events[-1] == ("failed", "PartError")


def at_step(step: int, error: BaseException):
    def processor(state, logits):
        if int(state.num_generated[0]) == step:
            raise error
        return logits

    return processor


@pytest.mark.parametrize(
    ("error", "caught", "reason"),
    [(KeyboardInterrupt(), KeyboardInterrupt, "cancelled"), (ValueError("x"), PartError, "error")],
)
def test_interrupts_and_errors_carry_what_there_was(error, caught, reason) -> None:
    """STREAM-14, NAN-01: the interrupt itself reaches the caller, with every row's partial text."""
    tokenizer = ByteTokenizer()
    model = ScriptedModel.of_ids(tokenizer.encode("hello"), 260, tokenizer=tokenizer)
    watcher = Watcher()
    pipeline = Pipeline(model, processors=[at_step(3, error)], observers=[watcher])
    with pytest.raises(caught) as info:
        pipeline.generate([[1], [2]])
    assert [(r.text, r.finish_reason) for r in info.value.partial_results] == [("hel", reason)] * 2
    assert watcher.events[-1] == ("failed", caught.__name__)


def test_one_row_of_nan_leaves_the_other_rows_text() -> None:
    script = torch.zeros(2, 4, 260)
    script[:, :, ord("k")] = 5
    script[1, 3] = float("nan")
    model = ScriptedModel(script, tokenizer=ByteTokenizer())
    with pytest.raises(Exception, match="row 1, step 3: the model gave NaN") as info:
        Pipeline(model).generate([[1], [2]])
    assert [r.text for r in info.value.partial_results] == ["kkk", "kkk"]


def test_closing_a_stream_early_finishes_the_run() -> None:
    watcher = Watcher()
    pipeline = Pipeline(flat(), observers=[watcher], stop_criteria=[MaxNewTokens(limit=9)])
    steps = pipeline.decode([1])
    next(steps)
    steps.close()
    assert watcher.events[-1] == ("finished", [[0]])


def test_a_run_leaves_no_cache_behind() -> None:
    """CACHE-17, MEM-04: neither result nor pipeline keeps what the run used."""
    refs = []

    class Noting(Dynamic):
        type: str = "noting"

        def acquire(self, model, state):
            cache = super().acquire(model, state)
            refs.extend([weakref.ref(cache), weakref.ref(state)])
            return cache

    pipeline = Pipeline(TinyModel(), cache=Noting(), stop_criteria=[MaxNewTokens(limit=3)])
    result = pipeline.generate("ab")
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert result.num_generated_tokens == 3


class FullStop(StopCriterion):
    """Makes a callable for each run that says nothing of itself."""

    type: Literal["full_stop"] = "full_stop"
    finish_reason: ClassVar[str] = "length"

    def bind(self, run):
        return lambda state: state.last_ids == 3


def test_a_result_names_the_criterion_that_was_listed_and_its_reason() -> None:
    model = ScriptedModel.of_ids([1, 3], 8)
    result = Pipeline(model, stop_criteria=[FullStop()]).generate([1])
    assert (result.stop.criterion, result.finish_reason) == ("full_stop", "length")


class Odd(Context):
    """Gives the same whatever it is asked for."""

    type: Literal["odd"] = "odd"
    encoded: Any = (1, 2)
    fitted: Any = (1, 2)

    def encode(self, prompt, tokenizer):
        return self.encoded

    def fit(self, ids, longest, limits, tokenizer=None):
        return self.fitted


@pytest.mark.parametrize(
    ("gives", "error", "message"),
    [
        ({"encoded": []}, InputError, r"empty: context \(odd\) left no token of it in `encode`"),
        ({"encoded": [999]}, InputError, r"prompt, after `encode` of context \(odd\),: 999 is no"),
        (
            {"encoded": "ids"},
            PartError,
            r"context \(odd\) returned 'ids' from `encode`, not",
        ),
        ({"encoded": [1.5]}, PartError, r"context \(odd\) returned \[1.5\] from `encode`, not"),
        ({"fitted": []}, InputError, r"empty: context \(odd\) left no token of it in `fit`"),
        ({"fitted": [999]}, InputError, r"prompt, after `fit` of context \(odd\),: 999 is no"),
        ({"fitted": None}, PartError, r"context \(odd\) returned None from `fit`, not a list"),
        ({"fitted": [1] * 999}, PartError, r"context \(odd\) returned 999 ids from `fit`, above"),
    ],
)
def test_a_context_that_gives_no_ids_of_the_model_is_named(gives, error, message: str) -> None:
    pipeline = Pipeline(TinyModel(), context=Odd(**gives))
    with pytest.raises(error, match=message):
        pipeline.generate("a")


def test_any_callable_fits() -> None:
    model = ScriptedModel.of_ids([3, 1, 2], 8)
    pipeline = Pipeline(
        model,
        processors=[lambda state, logits: -logits],
        sampler=lambda state, logits: logits.argmin(-1),
        stop_criteria=[lambda state: state.last_ids == 2, MaxNewTokens(limit=8)],
    )
    result = pipeline.generate([1])
    assert result.token_ids == [3, 1, 2] and result.finish_reason == "stop"


def test_a_result_reads_as_its_text_and_dumps_as_json_keys() -> None:
    tokenizer = ByteTokenizer()
    model = ScriptedModel.of_ids([104, 105, 257], 260, tokenizer=tokenizer, eos_token_ids=[257])
    result = Pipeline(model, stop_criteria=[Eos()], seed=4).generate("ab")
    assert str(result) == "hi"
    assert result.to_dict() == {
        "text": "hi",
        "token_ids": [104, 105, 257],
        "prompt_ids": [97, 98],
        "finish_reason": "stop",
        "stop": {"criterion": "eos", "matched": 257, "position": 2},
        "seed": 4,
        "sample": 0,
        "num_prompt_tokens": 2,
        "num_generated_tokens": 3,
        "logprobs": None,
    }


def test_nothing_is_warned_of_on_a_correct_call(recwarn) -> None:
    """EOS-05."""
    Pipeline(TinyModel(), stop_criteria=[Eos(), MaxNewTokens(limit=3)]).generate(["a", "bcd"])
    assert not recwarn.list


def test_a_model_loaded_for_one_cache_refuses_another_and_says_what_to_write() -> None:
    class Compiled(TinyModel):
        cache_must_use = frozenset({"static"})

    message = "`compile: true`.*`static`.*the cache 'dynamic' does not.*`cache: {type: static}`"
    with pytest.raises(UnsupportedError, match=message):
        Pipeline(Compiled())
    assert Pipeline(Compiled(), cache=Static()).generate([1], max_new_tokens=2).token_ids
