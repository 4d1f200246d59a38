"""What the strategies draw, and that they draw what they promise."""

import math
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

from genkit.kit import Kit
from genkit.testing import strategies
from genkit.testing.byte_tokenizer import ByteTokenizer

KIT = Kit(entry_points=False)


@given(strategies.logits(vocab_size=7))
def test_logits_can_be_drawn_from(logits: torch.Tensor) -> None:
    assert logits.shape[1] == 7 and 1 <= len(logits) <= 4
    assert logits.dtype in (torch.float32, torch.float64)
    assert not logits.isnan().any() and not (logits == math.inf).any()
    assert logits.isfinite().any(-1).all()


@pytest.mark.parametrize(
    "holds",
    [
        lambda row: (row == row.max()).sum() > 1,
        lambda row: row.isfinite().sum() == 1,
        lambda row: 1 < row.isfinite().sum() < len(row),
        lambda row: 0 < row.max() - row.min() < 2e-6,
        lambda row: row.double().softmax(-1).max() > 1 - 1e-9 and bool(row.isfinite().all()),
        lambda row: row[row.isfinite()].abs().max() > 5e3,
        lambda row: bool((row.signbit() & (row == 0)).any()),
        lambda row: row.dtype == torch.float64,
    ],
    ids=["tie", "single", "holes", "flat", "peak", "huge", "negative zero", "float64"],
)
def test_each_kind_of_row_is_drawn(holds) -> None:
    find(strategies.logits(batch=1).map(lambda logits: logits[0]), lambda row: bool(holds(row)),
         settings=settings(database=None))  # fmt: skip


@given(strategies.histories(9, max_rows=2, max_steps=3))
def test_histories_are_runs(history) -> None:
    assert 1 <= len(history) <= 2 and 1 <= history.num_steps <= 3
    state = history.state(history.num_steps)
    assert len(state) == len(history)
    for i, row in enumerate(history.rows):
        assert tuple(state.prompt_row(i).tolist()) == row.prompt
        assert tuple(state.generated_row(i).tolist()) == row.token_ids
        assert max(row.prompt + row.token_ids) < 9
    assert history.logits(0).shape == (len(history), 9)


@pytest.mark.parametrize(
    "holds",
    [
        lambda history: len({len(row.prompt) for row in history.rows}) > 1,
        lambda history: any(len(set(r.token_ids)) < len(r.token_ids) for r in history.rows),
        lambda history: any(8 in row.token_ids for row in history.rows),
    ],
    ids=["ragged", "repeats", "favoured"],
)
def test_histories_that_matter_are_drawn(holds) -> None:
    find(strategies.histories(favoured=[8]), holds, settings=settings(database=None))


@given(strategies.prompts(5, max_rows=2, max_tokens=3, favoured=[4, 99]))
def test_prompts_are_ids_of_the_vocabulary(prompts) -> None:
    assert 1 <= len(prompts) <= 2
    assert all(1 <= len(prompt) <= 3 and set(prompt) <= set(range(5)) for prompt in prompts)


@given(strategies.recipes(KIT))
@settings(deadline=None)
def test_recipes_are_accepted_and_come_back(data) -> None:
    recipe = KIT.recipe(data)
    assert KIT.recipe(recipe.to_dict()) == recipe


def test_every_registered_part_is_in_some_recipe() -> None:
    drawn = set()

    @settings(max_examples=1000, database=None, deadline=None, derandomize=True)
    @given(strategies.recipes(KIT))
    def collect(data) -> None:
        drawn.update(re.findall(r"'type': '(\w+)'", repr(data)))

    collect()
    in_recipes = {entry.name for entry in KIT.parts() if entry.kind != "exporter"}
    assert in_recipes <= drawn


@given(strategies.recipes(KIT, options={"top_k": st.just({"k": 41})}))
@settings(deadline=None)
def test_options_can_be_given(data) -> None:
    chosen = [part for part in data.get("processors", []) if part["type"] == "top_k"]
    assert chosen in ([], [{"type": "top_k", "k": 41}])


@given(strategies.tiny_models(), strategies.histories(ByteTokenizer.vocab_size, max_rows=2))
@settings(max_examples=20, deadline=None)
def test_tiny_models_run(model, history) -> None:
    state = history.state()
    logits = model(state.token_ids, model.new_cache(state))
    assert logits.shape == (len(history), model.vocab_size) and logits.isfinite().all()


@given(st.lists(strategies.tiny_models(), min_size=20, max_size=20))
@settings(max_examples=3, deadline=None)
def test_the_same_architecture_is_the_same_model(models) -> None:
    by_weights = {}
    for model in models:
        facts = {name: str(value) for name, value in vars(model).items()}
        assert by_weights.setdefault(repr(facts), model) is model


def test_testing_needs_neither_hypothesis_nor_pytest() -> None:
    code = """
import sys
sys.modules["hypothesis"] = sys.modules["pytest"] = None
import genkit.testing
from genkit.errors import MissingPackageError
genkit.testing.ByteTokenizer(), genkit.testing.LawBroken
for use in (
    lambda: genkit.testing.check_sampler(lambda state, logits: logits.argmax(-1)),
    lambda: __import__("genkit.testing.strategies"),
):
    try:
        use()
    except MissingPackageError as error:
        assert "pip install hypothesis" in str(error)
    else:
        raise SystemExit("it did without hypothesis")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
