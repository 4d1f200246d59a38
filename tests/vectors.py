"""Golden vectors: what real engines computed, and how a result is compared with it.

A file has one vector a line; `tests/data/golden/README.md` says what each field means. A vector is
reproduced when the parts that say the same as its parameters give the same logits::

    found = vector.apply([TopK(k=3)])
    vector.compare(found)
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState

FOLDER = Path(__file__).parent / "data" / "golden"
RELATIVE, PROBABILITY = 3e-6, 2e-6


@dataclass(frozen=True)
class Vector:
    """One measured fact.

    Attributes:
        raw: the line as it stands in the file; `vector["key"]` reads it.
    """

    raw: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    def get(self, key: str, default: Any = None) -> Any:
        """A field that may be missing."""
        return self.raw.get(key, default)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters under the engine's own names."""
        params: dict[str, Any] = self.raw.get("params") or {}
        return params

    @property
    def logits(self) -> torch.Tensor:
        """The input, float32 `[rows, vocab]`."""
        return numbers(self.raw["logits"])

    @property
    def history(self) -> list[list[int]]:
        """All tokens of each row before this step."""
        return [p + g for p, g in zip(*self.prompt_and_generated(), strict=True)]

    def prompt_and_generated(self) -> tuple[list[list[int]], list[list[int]]]:
        """The tokens of each row in two parts; all are the prompt where the file does not say."""
        history = self.raw.get("history") or []
        rows = len(self.raw["logits"])
        if isinstance(history, dict):
            return history["prompt"], history["generated"]
        prompts = [list(row) for row in history] or [[] for _ in range(rows)]
        return prompts, [[] for _ in prompts]

    def apply(self, parts: Sequence[Any], **facts: Any) -> torch.Tensor:
        """What parts make of the input, one after the other; see `apply`."""
        prompts, generated = self.prompt_and_generated()
        facts.setdefault("prompts", prompts)
        facts.setdefault("generated", generated)
        return apply(parts, self.logits, **facts)

    def compare(self, found: torch.Tensor, *, bits: bool = False, probs: bool = True) -> None:
        """Hold a result against the file.

        Args:
            found: the logits, `[rows, vocab]`.
            bits: whether they must agree to the last bit, and not up to rounding.
            probs: whether to compare the distribution as well, where the file has one.
        """
        compare(self.raw, found, bits=bits)
        if probs and self.raw.get("out_probs") and not self._may_differ():
            expected = numbers(self.raw["out_probs"]).nan_to_num(0.0, neginf=0.0)
            assert (found.softmax(-1) - expected).abs().max() <= PROBABILITY

    def _may_differ(self) -> bool:
        return bool(self.raw.get("tie_split") or self.raw.get("border"))


def compare(expected: dict[str, Any], found: torch.Tensor, *, bits: bool = False) -> None:
    """Hold logits against `out_logits` of a vector, or of one of its steps."""
    wanted = numbers(expected["out_logits"])
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    for given, right in zip(found, wanted, strict=True):
        if expected.get("tie_split"):  # which of equal ones is an accident of the engine's sort
            given, right = _kept(given), _kept(right)
        kept, kept_right = given > -math.inf, right > -math.inf
        if given.shape == right.shape:
            differing = int((kept != kept_right).sum())
            assert differing <= (1 if expected.get("border") else 0), "other tokens are kept"
            both = kept & kept_right
            given, right = given[both], right[both]
        else:
            assert expected.get("border") and abs(len(given) - len(right)) <= 1
            given, right = given[: len(right)], right[: len(given)]
        if bits:
            assert torch.equal(given, right)
        else:
            torch.testing.assert_close(given, right, rtol=RELATIVE, atol=1e-30)


def _kept(row: torch.Tensor) -> torch.Tensor:
    return row[row > -math.inf].sort(descending=True).values


def numbers(rows: Any) -> torch.Tensor:
    """Float32 numbers of a file; `null` is minus infinity."""
    special = {None: -math.inf, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}
    plain = [[special.get(x, x) if x is None or isinstance(x, str) else x for x in r] for r in rows]
    return torch.tensor(plain, dtype=torch.float64).float()


def apply(
    parts: Sequence[Any],
    logits: torch.Tensor,
    *,
    prompts: Sequence[Sequence[int]],
    generated: Sequence[Sequence[int]],
    eos: Sequence[int] = (),
    limit: int | None = None,
    tokenizer: Any = None,
) -> torch.Tensor:
    """Bind parts for one run and call them, as the loop does.

    Args:
        parts: components.
        logits: `[rows, vocab]`.
        prompts, generated: the tokens of each row; both may be empty.
        eos: the model's end tokens.
        limit: the most tokens a row may reach; by default far more than it has.
        tokenizer: for parts that read text.

    Returns:
        `[rows, vocab]`.
    """
    run, state = rows_of(prompts, generated, logits.shape[1], eos, limit, tokenizer)
    for part in parts:
        bound = part.bind(run)
        logits = logits if bound is None else bound(state, logits)
    return logits


def rows_of(
    prompts: Sequence[Sequence[int]],
    generated: Sequence[Sequence[int]],
    vocab_size: int,
    eos: Sequence[int] = (),
    limit: int | None = None,
    tokenizer: Any = None,
) -> tuple[Run, GenerationState]:
    """A run and its state; a row may be empty, and rows may have generated any number of tokens."""
    whole = [[*p, *g] for p, g in zip(prompts, generated, strict=True)]
    limits = [max(map(len, whole)) + 1000 if limit is None else limit] * len(whole)
    run = Run(
        prompts=tuple(map(tuple, prompts)),
        seeds=tuple(range(len(whole))),
        samples=(0,) * len(whole),
        limits=tuple(limits),
        rows=tuple(range(len(whole))),
        vocab_size=vocab_size,
        eos_token_ids=frozenset(eos),
        tokenizer=tokenizer,
    )
    rng = RowRandom([*run.seeds, 0], [*run.samples, 0])
    # The last row keeps the rectangle from being empty, and leaves again.
    state = GenerationState([*whole, [0]], [*limits, limits[0]], rng)
    state.reorder(range(len(whole)))
    state._spans = [
        (start, start + len(prompt))
        for (start, _), prompt in zip(state._spans, prompts, strict=True)
    ]
    state.prompt_ends = torch.tensor([end for _, end in state._spans])
    state._first_prompt_end = min(end for _, end in state._spans)
    return run, state


@functools.cache
def load(engine: str) -> tuple[Vector, ...]:
    """All vectors of an engine's file."""
    lines = (FOLDER / f"{engine}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Vector(json.loads(line)) for line in lines)


def engines() -> list[str]:
    """Those that there are files of."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))
