"""Rows of a batch: what they may differ in, who leaves when, and what is no row."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genkit import Pipeline, processors, samplers, stopping
from genkit.components.base import LogitsProcessor
from genkit.errors import InputError, PartError
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel

VOCAB_SIZE = 16


def flat(**options: Any) -> Pipeline:
    """Over logits that rise with the id by a little."""
    model = ScriptedModel(torch.linspace(0, 1, VOCAB_SIZE)[None])
    return Pipeline(model, stop_criteria=[stopping.MaxNewTokens(limit=20)], seed=0, **options)


# --- parts that do nothing ---------------------------------------------------------------


class Idle(LogitsProcessor):
    """A processor with nothing to do in any run."""

    type: str = "idle"

    def bind(self, run: Any) -> None:
        return None


def test_a_part_that_does_nothing_in_a_run_is_as_if_it_were_not_there() -> None:
    """BATCH-03: no processor at all, and one that binds to None."""
    prompts = [[1, 2, 3], [4]]
    penalty = processors.RepetitionPenalty(penalty=1.5)
    assert flat(processors=[Idle()]).generate(prompts) == flat(processors=[]).generate(prompts)
    with_idle = flat(processors=[Idle(), penalty, Idle()]).generate(prompts)
    assert with_idle == flat(processors=[penalty]).generate(prompts)
    assert with_idle != flat().generate(prompts)


def test_a_run_that_fails_leaves_the_pipeline_fit_for_the_next() -> None:
    """BATCH-03: the run with the failure has an error, and later ones their answers."""
    fail = [False]

    def sometimes(state: Any, logits: torch.Tensor) -> torch.Tensor:
        if fail[0] and int(state.num_generated[0]) == 2:
            raise TypeError("'NoneType' object is not iterable")
        return logits

    pipeline = flat(processors=[sometimes])
    expected = pipeline.generate([[1], [2, 3]])
    for _ in range(3):
        fail[0] = True
        with pytest.raises(PartError, match="'NoneType' object is not iterable") as caught:
            pipeline.generate([[1], [2, 3]])
        assert [len(row.token_ids) for row in caught.value.partial_results] == [2, 2]
        fail[0] = False
        assert pipeline.generate([[1], [2, 3]]) == expected


# --- top_k -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [VOCAB_SIZE - 1, VOCAB_SIZE, VOCAB_SIZE + 1, 9_999_999])
def test_top_k_as_large_as_the_vocabulary_or_larger(k: int) -> None:
    """BATCH-04, BATCH-10: everything is kept, and a seed draws what it draws without top_k."""
    cut = flat(processors=[processors.TopK(k=k)], sampler=samplers.Categorical())
    [*_, last] = cut.decode([[1], [2, 3]], seeds=[7, 8])
    assert last.logits.isfinite().sum(1).tolist() == [min(k, VOCAB_SIZE)] * 2
    if k >= VOCAB_SIZE:
        plain = flat(sampler=samplers.Categorical())
        together = cut.generate([[1], [2, 3]], seeds=[7, 8])
        assert together == plain.generate([[1], [2, 3]], seeds=[7, 8])
        assert together == [cut.generate([1], seed=7), cut.generate([2, 3], seed=8)]


# --- who is in a batch, and for how long -------------------------------------------------


def test_a_batch_is_the_prompts_and_nobody_else() -> None:
    """BATCH-09: no dummy row is ever fed, and the last row to end ends the run."""
    stop = 15
    scripts = torch.zeros(3, 6, VOCAB_SIZE)
    for row, steps in enumerate((3, 1, 3)):
        scripts[row, :, row] = 1.0
        scripts[row, steps - 1, stop] = 9.0
    model = ScriptedModel(scripts, eos_token_ids=[stop])
    results = Pipeline(model).generate([[1], [2, 3], [4, 5, 6]], max_new_tokens=100)
    assert [tuple(ids.shape) for ids in model.fed] == [(3, 3), (2, 1), (2, 1)]
    assert [row.token_ids for row in results] == [[0, 0, 15], [15], [2, 2, 15]]


def test_the_companions_of_a_row_may_end_before_it_or_after_it() -> None:
    tokenizer = ByteTokenizer()
    pipeline = Pipeline(TinyModel(), sampler=samplers.Categorical())
    alone = pipeline.generate("abc", seed=1, max_new_tokens=10)
    for other in ("x", "a much longer companion"):
        for stop_at in (1, 4, 10):
            ends = _EndsAt(len(tokenizer.encode(other)), stop_at)
            both = Pipeline(
                pipeline.model, sampler=samplers.Categorical(), stop_criteria=[ends]
            ).generate(["abc", other], seed=1, max_new_tokens=10)
            assert both[0].token_ids == alone.token_ids
            assert both[1].num_generated_tokens == stop_at


class _EndsAt:
    """Ends the rows whose prompt has so many tokens at a step."""

    def __init__(self, num_prompt_tokens: int, step: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.step = step

    def __call__(self, state: Any) -> torch.Tensor:
        lengths = state.prompt_ends - state.starts
        return (lengths == self.num_prompt_tokens) & (state.num_generated >= self.step)


# --- padding -----------------------------------------------------------------------------


def test_padding_is_not_the_callers_affair() -> None:
    """POS-03: prompts come as they are, and there is nowhere to say that ids are padding.

    So a batch cannot be padded on the wrong side: a mask is refused, and so is a pad id that is no
    token.
    """
    pipeline = Pipeline(TinyModel())
    rows = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14]]
    together = pipeline.generate(rows, seed=0, max_new_tokens=8)
    assert together == [pipeline.generate(ids, seed=0, max_new_tokens=8) for ids in rows]
    padded = [[*rows[0], 0, 0, 0, 0], rows[1]]
    mask: Any = [[1, 1, 1, 0, 0, 0, 0], [1] * 7]
    with pytest.raises(TypeError, match="attention_mask"):
        pipeline.generate(padded, attention_mask=mask)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="prompt 0: prompt: -1 is no token id"):
        pipeline.generate([[*rows[0], -1, -1, -1, -1], rows[1]])


def test_ids_of_a_tensor_are_those_of_its_lists() -> None:
    pipeline = Pipeline(TinyModel())
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    as_tensor = pipeline.generate(ids, seed=0, max_new_tokens=4)
    assert as_tensor == pipeline.generate(ids.tolist(), seed=0, max_new_tokens=4)
    assert [row.prompt_ids for row in as_tensor] == ids.tolist()
