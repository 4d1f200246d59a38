"""The three parts keep the laws, and give what their formulas say."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from math import inf, log
from pathlib import Path
from random import Random

import pytest
import torch

import genkit_lab
from genkit import Kit, Pipeline, stopping
from genkit.errors import InputError, OptionError
from genkit.testing import (
    ScriptedModel,
    TinyModel,
    check_logits_processor,
    check_sampler,
    choose,
    process,
)
from genkit_lab.arithmetic import Arithmetic
from genkit_lab.edt import Edt
from genkit_lab.p_less import PLess

SOURCE = Path(genkit_lab.__file__).parent
NAMES = ["arithmetic", "edt", "p_less"]


@pytest.mark.parametrize(
    "part",
    [Edt(temperature=1.0, theta=0.5), Edt(temperature=0.5, theta=50), PLess(), PLess(norm=True)],
    ids=str,
)
def test_processors_keep_the_laws(part: Edt | PLess) -> None:
    assert check_logits_processor(part, max_examples=25)


def test_the_sampler_keeps_the_laws_and_draws_by_probability() -> None:
    laws = check_sampler(Arithmetic(num_samples=4), distribution=True, max_examples=25)
    assert "draws by probability" in [law.name for law in laws]


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"genkit_lab.{name}"))
    assert tried >= 2 and failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_each_part_takes_less_than_60_lines(name: str) -> None:
    assert len((SOURCE / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60


# --- edt ---


def test_edt_falls_with_the_entropy() -> None:
    # One bit of entropy, and two: ln 2 and 2 ln 2 nats. theta = 2 ln 2 makes powers of the base.
    edt = Edt(temperature=1.0, theta=2 * log(2), base=0.5)
    assert process(edt, [3.0, 3.0, -inf, -inf]) == [12.0, 12.0, -inf, -inf]  # T = 0.5 ** 2
    assert process(edt, [3.0, 3.0, 3.0, 3.0]) == [6.0, 6.0, 6.0, 6.0]  # T = 0.5 ** 1


def test_edt_of_uneven_probabilities() -> None:
    row = [log(0.5), log(0.25), log(0.125), log(0.125)]
    temperature = 1.2 * 0.8 ** (0.7 / (1.75 * log(2)))
    expected = [round(logit / temperature, 4) for logit in row]
    assert process(Edt(temperature=1.2, theta=0.7), row) == expected


def test_edt_each_row_has_a_temperature_of_its_own() -> None:
    edt = Edt(temperature=2.0, theta=log(4))
    rows = torch.tensor([[1.6, 1.6, 1.6, 1.6], [1.6, 1.6, -inf, -inf]])
    answer = edt(None, rows)  # type: ignore[arg-type]  # it does not look at the state
    assert answer.tolist() == [pytest.approx([1.0] * 4), pytest.approx([1.25] * 2 + [-inf] * 2)]


def test_edt_with_theta_0_is_a_plain_temperature() -> None:
    assert process(Edt(temperature=0.5, theta=0), [2.0, 1.0, -inf, 0.0]) == [4.0, 2.0, -inf, 0.0]


def test_edt_of_a_certain_row_leaves_one_token() -> None:
    answer = process(Edt(temperature=1.0, theta=1.0), [200.0, 0.0, -inf, 100.0])
    assert torch.tensor(answer).softmax(-1).tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"theta": -1}, {"base": 1.5}])
def test_edt_refuses_numbers_out_of_range(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=f"edt: {name}"):
        Edt(**{"temperature": 1.0, "theta": 1.0, **wrong})


# --- p_less ---


def test_p_less_keeps_what_reaches_the_chance_that_two_draws_agree() -> None:
    row = [log(0.4), log(0.31), log(0.19), log(0.1)]  # L = 0.3022
    assert process(PLess(), row) == [-0.9163, -1.1712, -inf, -inf]
    row = [log(0.4), log(0.29), log(0.21), log(0.1)]  # L = 0.2982
    assert process(PLess(), row) == [-0.9163, -inf, -inf, -inf]


def test_p_less_norm_takes_off_what_is_agreed_by_luck() -> None:
    row = [log(0.4), log(0.3), log(0.2), log(0.1)]  # L = 0.3, normed (4 * 0.3 - 1) / 3 = 0.0667
    assert process(PLess(norm=True), row) == [-0.9163, -1.204, -1.6094, -2.3026]
    row = [log(0.7), log(0.2), log(0.05), log(0.05)]  # L = 0.535, normed 0.38
    assert process(PLess(norm=True), row) == [-0.3567, -inf, -inf, -inf]


@pytest.mark.parametrize("size", [2, 3, 7, 10, 49, 1000])
@pytest.mark.parametrize("norm", [False, True])
def test_p_less_keeps_all_of_equal_tokens(size: int, norm: bool) -> None:
    assert process(PLess(norm=norm), [0.5] * size) == [0.5] * size


def test_p_less_norm_counts_allowed_tokens() -> None:
    few = process(PLess(norm=True), [2.0, 1.0, 0.0])
    assert process(PLess(norm=True), [2.0, 1.0, 0.0, *[-inf] * 9])[:3] == few
    assert process(PLess(norm=True), [-inf, 1.0, -inf]) == [-inf, 1.0, -inf]


# --- arithmetic ---


def first_tokens(logits: list[float], n: int, seed: int) -> list[int]:
    """The first token of each of n samples of one prompt."""
    model = ScriptedModel([logits])
    pipeline = Pipeline(
        model,
        sampler=Arithmetic(num_samples=n),
        stop_criteria=[stopping.MaxNewTokens(limit=1)],
    )
    return [r.token_ids[0] for r in pipeline.generate([0], seed=seed, num_samples=n)]


@pytest.mark.parametrize("seed", range(20))
def test_samples_of_a_flat_row_are_all_different(seed: int) -> None:
    # The codes of 7 samples are 1/8 apart, and each of 8 equal tokens has 1/8 of the interval.
    tokens = first_tokens([0.0] * 8, 7, seed)
    assert len(set(tokens)) == 7
    begin = Random(f"arithmetic:0 {seed}").random()
    assert tokens == [int((begin + (i + 1) / 8) % 1 * 8) for i in range(7)]


def test_the_next_token_comes_from_what_is_left_of_the_code() -> None:
    code = (Random("sampler 3").random() + 1 / 3) % 1  # 0.8763...
    row = [log(0.5), log(0.25), log(0.125), log(0.125)]
    part = Arithmetic(num_samples=2)
    begins, widths = [0.0, 0.5, 0.75, 0.875], [0.5, 0.25, 0.125, 0.125]
    for length in range(6):
        token = max(i for i in range(4) if begins[i] <= code)
        assert choose(part, row, seed=3, generated=[0] * length) == token
        code = (code - begins[token]) / widths[token]


def test_codes_never_run_dry() -> None:
    """A code has 53 bits, and a step on 4 equal tokens takes 2: 500 steps need fresh ones."""
    steps = 500
    model = ScriptedModel([[0.0] * 4])
    pipeline = Pipeline(
        model,
        sampler=Arithmetic(num_samples=64),
        stop_criteria=[stopping.MaxNewTokens(limit=steps)],
    )
    results = pipeline.generate([0], seed=0, num_samples=64)
    late = torch.tensor([result.token_ids[100:] for result in results])
    counts = late.flatten().bincount(minlength=4) / late.numel()
    assert counts.tolist() == pytest.approx([0.25] * 4, abs=0.02)
    assert len({tuple(row) for row in late.tolist()}) == 64


def test_more_samples_than_the_recipe_says_are_refused() -> None:
    pipeline = Pipeline(TinyModel(), sampler=Arithmetic(num_samples=2))
    with pytest.raises(InputError, match="3 samples are asked for; num_samples is 2"):
        pipeline.generate([1, 2], num_samples=3, max_new_tokens=1)


# --- all together ---

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of the README in one language."""
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_recipe_of_the_readme_runs_and_rows_keep_to_themselves(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    recipe = Kit(plugins=[genkit_lab], entry_points=False).recipe(path)
    assert [part.type for part in recipe.processors] == ["edt", "p_less"]
    assert recipe.sampler == Arithmetic(num_samples=4)
    pipeline = Pipeline(TinyModel(), processors=recipe.processors, sampler=recipe.sampler)
    alone = pipeline.generate([3, 1, 4], seed=7, num_samples=4, max_new_tokens=5)
    batch = pipeline.generate([[5], [3, 1, 4]], seeds=[1, 7], num_samples=4, max_new_tokens=5)
    assert [r.token_ids for r in batch[4:]] == [r.token_ids for r in alone]


def test_the_python_of_the_readme_runs() -> None:
    namespace: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, namespace)
    assert len(namespace["results"]) == 7  # type: ignore[arg-type]


def test_listing_the_parts_imports_none_of_them() -> None:
    code = (
        "import sys, genkit_lab\n"
        "from genkit import Kit\n"
        "kit = Kit(plugins=[genkit_lab], entry_points=False)\n"
        "print([e.name for e in kit.parts() if e.name in ('edt', 'p_less', 'arithmetic')])\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['edt', 'p_less', 'arithmetic']", "False"]


def test_summaries_are_those_of_the_classes() -> None:
    kit = Kit(plugins=[genkit_lab], entry_points=False)
    summaries = {entry.name: entry.summary for entry in kit.parts()}
    for part in (Edt, PLess, Arithmetic):
        assert summaries[part.type_name()] == part.summary()
