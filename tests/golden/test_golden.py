"""Every vector of the real engines is reproduced, or there is a reason why not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import golden_chains
import golden_history
import golden_masks
import golden_samplers
import golden_truncation
import vectors

MODULES = (golden_truncation, golden_history, golden_masks, golden_samplers, golden_chains)
OPS: dict[tuple[str, str], Any] = {}
for module in MODULES:
    assert not OPS.keys() & module.OPS.keys()
    OPS |= module.OPS
EXCUSED: dict[str, str] = {key: why for module in MODULES for key, why in module.EXCUSED.items()}

NO_PART = {
    ("llama.cpp", "grammar"): "see the processor `structured` of the plugin lm-genkit-structured",
    ("llama.cpp", "infill"): "completion of code is no part of genkit",
    ("transformers", "bark_eos_prioritizer"): "for speech",
    ("transformers", "alternating_codebooks"): "for speech",
    ("transformers", "cfg_batched"): "guidance is a model of its own, not a processor",
    ("transformers", "cfg_unbatched"): "guidance is a model of its own, not a processor",
}

ALL = [vector for engine in vectors.engines() for vector in vectors.load(engine)]
TRIED = [vector for vector in ALL if (vector["engine"], vector["op"]) not in NO_PART]


@pytest.mark.parametrize("vector", TRIED, ids=[vector["id"] for vector in TRIED])
def test_a_vector_is_reproduced(vector: vectors.Vector) -> None:
    if vector["id"] in EXCUSED:
        with pytest.raises(Exception):  # noqa: B017, PT011  # an excuse that is no longer needed must go
            OPS[vector["engine"], vector["op"]](vector)
        return
    OPS[vector["engine"], vector["op"]](vector)


def test_few_vectors_are_excused() -> None:
    assert EXCUSED.keys() <= {vector["id"] for vector in TRIED}
    assert len(EXCUSED) < 0.01 * len(TRIED)


def test_every_operation_is_tried_or_named() -> None:
    found = Counter((vector["engine"], vector["op"]) for vector in ALL)
    assert found.keys() == OPS.keys() | NO_PART.keys()
