"""What a draw depends on, and what not."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from genkit import Pipeline, processors, samplers, stopping
from genkit.testing import ScriptedModel, TinyModel

PROMPTS = ["A", "a second one", "third", "the fourth prompt"]
SEEDS = [1, 2, 3, 4]


def sampled(model: Any = None, **options: Any) -> Pipeline:
    return Pipeline(
        model or TinyModel(),
        processors=[processors.Temperature(temperature=0.9)],
        sampler=samplers.Categorical(),
        stop_criteria=[stopping.MaxNewTokens(limit=6)],
        **options,
    )


def test_a_row_draws_the_same_whatever_becomes_of_its_companion() -> None:
    """SEED-01: a companion without a seed of its own, with one, and none at all."""
    pipeline = sampled(ScriptedModel(torch.zeros(1, 64)))
    alone = pipeline.generate([1], seed=42)
    for _ in range(3):
        drawn = pipeline.generate([1]).seed  # what a row without a seed gets
        assert pipeline.generate([[1], [1]], seeds=[42, drawn])[0] == alone
        assert pipeline.generate([[1], [1]], seeds=[42, 7])[0] == alone
        assert pipeline.generate([1], seed=42) == alone


def test_any_order_and_any_company_gives_the_same_text() -> None:
    """SEED-02: four prompts in all 24 orders, in pairs and one by one."""
    pipeline = sampled()
    alone = [pipeline.generate(p, seed=s) for p, s in zip(PROMPTS, SEEDS, strict=True)]
    for count in (4, 2):
        for order in itertools.permutations(range(4), count):
            rows = pipeline.generate([PROMPTS[i] for i in order], seeds=[SEEDS[i] for i in order])
            assert rows == [alone[i] for i in order]
    assert len({row.text for row in alone}) == 4


def global_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state[1].tolist()


@pytest.mark.parametrize("seed", [3, None])
def test_global_generators_are_left_as_they_are(seed: int | None) -> None:
    """SEED-02: with a seed and without."""
    before = global_states()
    sampled().generate(PROMPTS, seed=seed)
    assert list(sampled().stream(PROMPTS[0], seed=seed))
    assert global_states() == before


def test_without_a_seed_a_seeded_program_gets_variety_all_the_same() -> None:
    """SEED-05, SEED-06: and the seed that was used is in the result."""
    pipeline = sampled()
    results = []
    for _ in range(5):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        results.append(pipeline.generate("A"))
    assert len({result.seed for result in results}) == 5
    assert len({tuple(result.token_ids) for result in results}) == 5
    for result in results:
        assert pipeline.generate("A", seed=result.seed) == result


@pytest.mark.parametrize(
    ("of_pipeline", "of_call", "used"), [(1, 2, 2), (1, None, 1), (None, 2, 2), (1, 0, 0)]
)
def test_the_seed_of_the_call_rules(
    of_pipeline: int | None, of_call: int | None, used: int
) -> None:
    """SEED-05."""
    result = sampled(seed=of_pipeline).generate("A", seed=of_call)
    assert result.seed == used
    assert result == sampled().generate("A", seed=used)


@pytest.mark.slow
def test_fresh_processes_without_a_seed_differ_and_with_one_agree() -> None:
    """SEED-05."""
    program = (
        "import sys\n"
        "from genkit import Pipeline, samplers\n"
        "from genkit.testing import TinyModel\n"
        "pipeline = Pipeline(TinyModel(), sampler=samplers.Categorical())\n"
        "seed = int(sys.argv[1]) if sys.argv[1:] else None\n"
        "print(pipeline.generate('A', seed=seed, max_new_tokens=12).token_ids)\n"
    )

    def run(*seed: str) -> str:
        words = [sys.executable, "-c", program, *seed]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout

    assert run() != run()
    assert run("7") == run("7")
