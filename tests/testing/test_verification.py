from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch

import zoo
from genkit import Pipeline, caches, contexts, processors, samplers, stopping
from genkit.backends.model_facts import facts_of
from genkit.backends.pytorch_model import PyTorchModel
from genkit.components.base import CacheManager, Component, LogitsProcessor
from genkit.testing import (
    LAWS,
    ByteTokenizer,
    Finding,
    ScriptedModel,
    TinyModel,
    Verdict,
    Verification,
    verify,
)
from genkit.testing.laws.decoder import DECODER_LAWS
from genkit.testing.laws.model import MODEL_LAWS
from genkit.testing.laws.processor import PROCESSOR_LAWS
from genkit.testing.laws.sampler import SAMPLER_LAWS
from genkit.testing.laws.stop_criterion import STOP_CRITERION_LAWS
from genkit.testing.verification.law_row import LawRow
from genkit.testing.verification.loss import measure_loss
from genkit.testing.verification.part_check import PartCheck
from genkit.testing.verification.trial import Trial

TEMPERATURE, TOP_K = processors.Temperature(temperature=0.9), processors.TopK(k=20)


def pipeline_of(model: Any = None, **parts: Any) -> Pipeline:
    model = TinyModel(num_layers=1) if model is None else model
    return Pipeline(model, **{"sampler": samplers.Categorical(), "stop_criteria": [], **parts})


def rows(found: Verification, part: str | None = None) -> dict[str, LawRow]:
    return {row.name: row for row in found.laws if row.part == part}


# --- a pipeline that keeps the laws ---


@pytest.fixture(scope="module")
def healthy() -> Verification:
    parts = {"processors": [TEMPERATURE, TOP_K], "stop_criteria": [stopping.MaxNewTokens(limit=3)]}
    return verify(pipeline_of(**parts), num_cases=1)


def test_every_law_is_tried_and_holds(healthy: Verification) -> None:
    assert healthy.holds
    assert (healthy.broken, healthy.loss, healthy.notes) == ((), None, ())
    assert {row.holds for row in rows(healthy).values()} == {True}
    assert list(rows(healthy)) == [law.name for law in (*LAWS, *MODEL_LAWS)]


def test_each_part_is_held_to_the_laws_of_its_kind(healthy: Verification) -> None:
    counts = {
        part: len(rows(healthy, part)) for part in dict.fromkeys(r.part for r in healthy.laws)
    }
    del counts[None]
    assert counts == {
        "processors.0 (temperature)": len(PROCESSOR_LAWS),
        "processors.1 (top_k)": len(PROCESSOR_LAWS),
        "sampler (categorical)": len(SAMPLER_LAWS),
        "stop_criteria.0 (max_new_tokens)": len(STOP_CRITERION_LAWS),
    }


def test_what_a_part_has_not_promised_is_not_said_to_hold(healthy: Verification) -> None:
    row = rows(healthy, "processors.0 (temperature)")["rewinds"]
    assert (row.holds, row.cases, row.detail) == (None, 0, "not promised: it has no `rewind`")


def test_a_kind_without_laws_is_said_to_have_none() -> None:
    class Oracle(Component):
        """Knows."""

        type: Literal["oracle"] = "oracle"
        kind: ClassVar[str] = "oracle"

    [row] = PartCheck("oracle", 1).rows(Oracle(), load=lambda backend: backend)
    assert (row.holds, row.detail) == (None, "there are no laws of the kind 'oracle'")


def test_a_row_says_how_much_was_compared(healthy: Verification) -> None:
    row = rows(healthy)["cached = uncached"]
    assert (row.cases, row.decisions, row.excused) == (1, 3 * 8, 0)
    assert row.worst_logit_error is not None and 0 < row.worst_logit_error < 1e-3
    assert row.smallest_margin is not None and 0 < row.smallest_margin < 1
    assert rows(healthy)["streamed = whole"].smallest_margin is None


def test_it_is_plain_data_that_json_can_hold(healthy: Verification) -> None:
    document = json.loads(json.dumps(healthy.to_dict(), allow_nan=False))
    assert set(document) == {"laws", "holds", "loss", "notes"}
    assert set(document["laws"][0]) >= {"name", "holds", "cases", "worst_logit_error", "detail"}


def test_the_same_seed_finds_the_same() -> None:
    pipeline = pipeline_of()
    first, again, other = (verify(pipeline, num_cases=1, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_progress_names_each_law_and_part() -> None:
    lines: list[str] = []
    verify(pipeline_of(processors=[TOP_K]), num_cases=1, progress=lines.append)
    assert lines[0] == f"law 1 of {len(LAWS) + len(MODEL_LAWS)}: cached = uncached"
    assert lines[-2:] == ["laws of processors.0 (top_k)", "laws of sampler (categorical)"]


def test_observers_see_nothing() -> None:
    seen: list[Any] = []

    class Observer:
        def genkit_step(self, run: Any, step: Any) -> None:
            seen.append(step)

    verify(pipeline_of(observers=[Observer()]), num_cases=1)
    assert seen == []


def test_nothing_tried_is_nothing_held() -> None:
    untried = LawRow("a law", "it says something", None, detail="it does not apply")
    assert not Verification((untried,)).holds
    assert Verification((untried, replace(untried, holds=True))).holds
    assert not Verification((replace(untried, holds=False), replace(untried, holds=True))).holds


# --- pipelines that break a law ---


class OffByOne(CacheManager):
    """Hands out a cache that has lost what it holds of its last column."""

    type: Literal["off_by_one"] = "off_by_one"

    def acquire(self, model: Any, state: Any) -> Any:
        cache = model.new_cache(state)
        advance = cache.advance

        def advance_and_lose(n: int) -> None:
            advance(n)
            for i, (keys, values) in enumerate(cache.layers):
                cache.replace(i, keys.roll(1, 2), values.roll(1, 2))

        cache.advance = advance_and_lose
        return cache


def test_a_cache_manager_that_is_off_by_one() -> None:
    found = verify(pipeline_of(cache=OffByOne()), num_cases=1)
    assert not found.holds
    row = rows(found)["cached = uncached"]
    assert row.holds is False
    assert "step 1: the logits differ by" in row.detail
    assert {r.part for r in found.broken} == {None}
    model_laws = [rows(found)[law.name] for law in MODEL_LAWS]
    assert all(r.holds for r in model_laws)  # the model is not blamed


class Overwriting(LogitsProcessor):
    """Writes into its input in a way that leaves no trace in the version counter."""

    type: Literal["overwriting"] = "overwriting"
    keeps_argmax: ClassVar[bool] = True

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        logits.data[:, 0] -= 1
        return logits.clone()


def test_a_processor_that_writes_into_its_input() -> None:
    found = verify(pipeline_of(processors=[TEMPERATURE, Overwriting(), TOP_K]), num_cases=1)
    row = rows(found, "processors.1 (overwriting)")["leaves what it is given"]
    assert (row.holds, row.cases) == (False, 1)
    assert row.detail == "step 0: it wrote into the logits given in step 0"
    blamed = {r.part for r in found.broken} - {None}  # runs fail too, and name it
    assert blamed == {"processors.1 (overwriting)"}


def test_a_part_that_raises_breaks_its_laws_and_loses_no_row() -> None:
    def failing(state: Any, logits: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no luck")

    found = verify(pipeline_of(processors=[failing]), num_cases=1)
    [part] = {r.part for r in found.laws if r.part and r.part.startswith("processors")}
    assert all("no luck" in row.detail for row in rows(found, part).values() if row.holds is False)
    assert "no luck" in rows(found)["cached = uncached"].detail
    assert not any(r.holds is False for r in rows(found, "sampler (categorical)").values())


def test_parts_get_what_those_before_them_give() -> None:
    widths: list[int] = []

    def watching(state: Any, logits: torch.Tensor) -> torch.Tensor:
        widths.append(int(logits[0].isfinite().sum()))
        return logits

    verify(pipeline_of(processors=[processors.TopK(k=5), watching]), num_cases=1)
    assert set(widths) <= {0, 5}  # 0: the law of empty rows


# --- what does not apply ---


class RecurrentModel(TinyModel):
    """Claims nothing, as a model with a recurrent state does."""

    def __init__(self) -> None:
        super().__init__(num_layers=1)
        self.supports = frozenset()


def test_a_model_that_supports_nothing() -> None:
    found = verify(pipeline_of(RecurrentModel()), num_cases=1)
    assert found.holds
    not_applicable = {name for name, row in rows(found).items() if row.holds is None}
    assert not_applicable == {law.name for law in (*LAWS, *MODEL_LAWS) if law.needs}
    row = rows(found)["batch = single"]
    assert (row.cases, row.worst_logit_error) == (0, None)
    assert row.detail == "the model with the cache 'dynamic' does not support reorder"


def test_without_a_cache_the_model_is_still_judged_by_its_own() -> None:
    found = verify(pipeline_of(RecurrentModel(), cache=caches.NoCache()), num_cases=1)
    assert rows(found)["a failed forward changes nothing"].holds is None


def test_a_model_that_asks_for_a_cache_is_compared_with_others() -> None:
    class Demanding(TinyModel):
        cache_must_use = frozenset({"static"})

    found = verify(pipeline_of(Demanding(num_layers=1), cache=caches.Static()), num_cases=1)
    assert found.holds
    assert rows(found)["cached = uncached"].holds


def test_a_decoder_has_laws_of_its_own() -> None:
    from genkit.core.loop import autoregressive

    found = verify(pipeline_of(decoder=autoregressive), num_cases=1)
    assert found.holds
    assert {law.name for law in DECODER_LAWS} <= set(rows(found))


# --- what is left out ---


def test_a_time_limit_is_left_out_with_a_note() -> None:
    criteria = [stopping.MaxNewTokens(limit=3), stopping.TimeLimit(seconds=1e-9)]
    found = verify(pipeline_of(stop_criteria=criteria), num_cases=1)
    assert found.holds
    [note] = found.notes
    assert note.startswith("stop_criteria.1 (time_limit) was left out: it ends rows by the clock")
    row = rows(found)["cached = uncached"]
    assert row.decisions == 3 * 8  # the limit was not reached after one token
    part = rows(found, "stop_criteria.1 (time_limit)")
    assert {r.holds for r in part.values()} == {None}
    assert {r.cases for r in part.values()} == {0}


def test_a_limit_that_leaves_no_room_is_left_out_and_still_judged() -> None:
    found = verify(pipeline_of(stop_criteria=[stopping.MaxLength(limit=9)]), num_cases=1)
    assert found.holds
    [note] = found.notes
    assert note.endswith("and it allows 9")
    of_limit = rows(found, "stop_criteria.0 (max_length)")
    assert not any(row.holds is False for row in of_limit.values())
    assert of_limit["ends by its bound"].holds


def test_a_limit_with_room_stays() -> None:
    trial = Trial.of(pipeline_of(stop_criteria=[stopping.MaxLength(limit=250)]), 2, 0)
    assert trial.notes == ()
    assert trial.pipeline.parts.stop_criteria == (stopping.MaxLength(limit=250),)


def test_prefixes_on_disk_are_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path))
    pipeline = pipeline_of(cache=caches.Prefix(disk=True, max_bytes=10_000))
    pipeline.generate([1, 2, 3], max_new_tokens=2)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files
    found = verify(pipeline, num_cases=1)
    assert found.holds
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    [note] = found.notes
    assert note.startswith("cache.disk was left out: the laws neither read nor write files")
    trial = Trial.of(pipeline, 1, 0)
    assert trial.pipeline.parts.cache == caches.Prefix(max_bytes=10_000)
    assert pipeline.parts.cache.disk


# --- models that are compiled ---


@pytest.mark.slow
def test_a_compiled_model_keeps_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch writes down all that it traces as soon as anybody listens, and pytest does.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)
    module = zoo.shared("llama").module
    model = PyTorchModel(module, facts_of(module), compiler="eager")
    found = verify(pipeline_of(model, cache=caches.Static()), num_cases=1)
    assert [(row.name, row.detail) for row in found.broken] == []
    unheld = [name for name, row in rows(found).items() if row.holds is None]
    assert unheld == ["streamed = whole"]
    assert model.compiled is not None and model.compiled.num_compilations > 1


# --- cases ---


def test_prompts_are_texts_in_turns_in_the_context_of_the_pipeline_and_plain() -> None:
    chat = contexts.Chat(system="Brief.")
    case, plain = Trial.of(pipeline_of(context=chat), 2, 0).cases
    tokenizer = ByteTokenizer()
    prefix = tuple(tokenizer.encode_chat(chat.messages("x")))
    shared = prefix[: prefix.index(ord("x"))]
    assert case.prompts[0][: len(shared)] == shared
    assert tokenizer.turn_start_id not in plain.prompts[0]
    lengths = [len(prompt) for prompt in case.prompts]
    assert lengths == sorted(set(lengths))
    assert len(set(case.seeds)) == 3


def test_a_context_that_takes_no_text_is_left_out() -> None:
    [case] = Trial.of(pipeline_of(context=contexts.Chat(continue_last=True)), 1, 0).cases
    assert len(case.prompts) == 3


def test_random_ids_where_there_is_no_tokenizer() -> None:
    [case] = Trial.of(pipeline_of(TinyModel(vocab_size=11)), 1, 0).cases
    assert all(0 <= token_id < 11 for prompt in case.prompts for token_id in prompt)
    assert [3 <= len(p) <= 40 for p in case.prompts] == [True] * 3


@pytest.mark.parametrize("length", [2, 3, 5, 16])
def test_a_small_context_holds_prompts_and_answers(length: int) -> None:
    pipeline = pipeline_of(TinyModel(num_layers=1, context_length=length))
    [case] = Trial.of(pipeline, 1, 0).cases
    assert all(1 <= len(prompt) <= length - case.num_tokens for prompt in case.prompts)
    found = verify(pipeline, num_cases=1)
    assert found.holds, found.broken


def test_what_a_context_has_no_room_for_does_not_apply() -> None:
    found = verify(pipeline_of(TinyModel(num_layers=1, context_length=2)), num_cases=1)
    row = rows(found)["any left padding"]
    assert (row.holds, row.cases) == (None, 0)
    assert row.detail == "the model's context holds 2 tokens, and it takes 3"
    unheld = [name for name, row in rows(found).items() if row.holds is None]
    assert unheld == ["any left padding"]


# --- the loss ---


@pytest.mark.parametrize(
    "cache", [caches.SinkWindow(num_sinks=1, window=4), caches.Quantized(bits=4)]
)
def test_the_loss_of_a_lossy_cache(cache: Any) -> None:
    found = verify(pipeline_of(cache=cache), num_cases=1)
    assert found.holds
    assert {law.name for law in LAWS if "lossy" not in law.grades} <= {
        row.name for row in found.laws if row.holds is None
    }
    assert found.loss is not None
    document = found.loss.to_dict()
    assert 0 < document["kl_mean"] < document["kl_max"]
    assert document["within_rounding"] is False
    assert document["num_distributions"] == 3 * 16
    assert len(document["first_differences"]) == 3
    assert 0 < document["resident_bytes"] < document["dynamic_bytes"]
    assert (document["peak_bytes"] is None) == isinstance(cache, caches.SinkWindow)
    json.dumps(document, allow_nan=False)


def test_roundings_that_fall_the_other_way_are_measured() -> None:
    law = next(law for law in LAWS if law.name == "batch = single")
    beyond = Finding(cases=1, decisions=14, beyond=3, worst_logit_error=0.006)
    row = LawRow.of(Verdict(law, beyond), cache_error=0.1)
    assert (row.holds, row.cases, row.worst_logit_error) == (None, 1, 0.006)
    assert row.detail.startswith("measured, as the cache rounds: in 3 of 14 steps")
    assert LawRow.of(Verdict(law, beyond), cache_error=0.01).holds is False  # as much as the cache
    assert LawRow.of(Verdict(law, beyond)).holds is False  # no lossy cache
    wrong = beyond + Finding(mismatches=1, detail="other tokens")
    assert LawRow.of(Verdict(law, wrong), cache_error=0.1).holds is False


def test_a_cache_that_has_lost_nothing_says_that_it_may() -> None:
    found = verify(pipeline_of(cache=caches.SinkWindow(window=200)), num_cases=1)
    assert found.loss is not None
    assert found.loss.within_rounding
    assert found.loss.kl_max < 1e-9
    assert set(found.loss.first_differences) == {None}
    assert found.loss.median_first_difference is None
    assert found.notes == (found.loss.remark,)
    assert f"of up to {found.loss.longest} tokens" in found.loss.remark


class Flattening(CacheManager):
    """Lets a scripted model say something else at step 2 than without a cache."""

    type: Literal["flattening"] = "flattening"
    grade: ClassVar[Literal["exact", "tolerance", "lossy"]] = "lossy"

    def acquire(self, model: Any, state: Any) -> Any:
        cache = model.new_cache(state)
        cache.is_lossy = True
        return cache


def test_divergence_and_first_difference_have_the_exact_values() -> None:
    class Model(ScriptedModel):
        def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
            step = cache.length + input_ids.shape[1] - cache.prompt_end
            logits = super().last(input_ids, cache, n)
            return logits.flip(-1) if step == 2 and hasattr(cache, "is_lossy") else logits

    probabilities = torch.tensor([[0.25, 0.75]])
    pipeline = pipeline_of(
        Model(probabilities.log()), cache=Flattening(), sampler=samplers.Greedy()
    )
    case = replace(Trial.of(pipeline, 1, 0).cases[0], prompts=((0,),), seeds=(1,))
    loss = measure_loss(pipeline, [case])
    assert loss.first_differences == (2,)
    assert len(loss.divergences) == 16
    expected = 0.5 * torch.tensor(3.0).log()  # KL of (1/4, 3/4) from (3/4, 1/4)
    assert loss.worst_logit_error == pytest.approx(2 * float(expected), rel=1e-6)
    assert loss.kl_max == pytest.approx(float(expected), rel=1e-6)
    assert loss.kl_mean == pytest.approx(float(expected) / 16, rel=1e-6)
    assert (loss.longest, loss.peak_bytes) == (17, None)


def test_neither_hypothesis_nor_pytest_is_needed() -> None:
    program = (
        "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = None\n"
        "from genkit.testing import TinyModel, verify\n"
        "from genkit import Pipeline\n"
        "print(verify(Pipeline(TinyModel(num_layers=1)), num_cases=1).holds)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
