"""A run that has happened: what laws of parts are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Self

import torch

from genkit.core.contracts import Model
from genkit.core.random import RowRandom
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.text.tokenizer import Tokenizer

_FEW = 100  # logits that an example of a broken law still shows
_MOST_ROOM = 3  # tokens by which the limit of a row may lie beyond its last step


@dataclass(frozen=True, eq=False, repr=False)
class Row:
    """One row of a run.

    Attributes:
        prompt: its prompt.
        token_ids: the ids it has generated, one a step.
        logits: what each of them was chosen from, `[steps, vocab]`, float32 or float64.
        seed, sample: what its draws come from.
    """

    prompt: tuple[int, ...]
    token_ids: tuple[int, ...]
    logits: torch.Tensor
    seed: int = 0
    sample: int = 0

    def __repr__(self) -> str:
        few = self.logits.numel() <= _FEW
        logits = str(self.logits.tolist() if few else list(self.logits.shape))
        dtype = str(self.logits.dtype).removeprefix("torch.")
        return f"Row({self.prompt}, {self.token_ids}, {dtype} {logits}, seed={self.seed})"

    @property
    def limit(self) -> int:
        """The most tokens it may reach, prompt included: what it has, or a few more.

        It is the row's own, and that of `another` is never as far off, so that what goes by the
        room of other rows is noticed.
        """
        room = (2 * sum(self.prompt) + self.seed) % (_MOST_ROOM + 1)
        return len(self.prompt) + len(self.token_ids) + room

    def then(self, other: Row, step: int) -> Row:
        """The first steps of this row, and from `step` on the tokens and logits of another."""
        return replace(
            self,
            token_ids=self.token_ids[:step] + other.token_ids[step:],
            logits=torch.cat((self.logits[:step], other.logits[step:])),
        )

    def another(self, extra: int = 0) -> Row:
        """A row of as many steps with other tokens, logits and draws.

        Its prompt is longer by `extra` tokens.
        """
        vocab_size = self.logits.shape[-1]
        prompt = tuple((i + 1) % vocab_size for i in self.prompt)
        return Row(
            prompt=(prompt * (1 + extra))[: len(prompt) + extra],
            token_ids=tuple((i + 1) % vocab_size for i in self.token_ids),
            logits=self.logits.roll(1, -1),
            seed=self.seed ^ 1,
            sample=self.sample,
        )

    def lengthened(self, num_steps: int) -> Row:
        """The row with so many steps: its tokens over and over, the logits of its first step."""
        token_ids = tuple(islice(cycle(self.token_ids), num_steps))
        # A view: so many rows of a large vocabulary would not fit into memory.
        return replace(self, token_ids=token_ids, logits=self.logits[:1].expand(num_steps, -1))


@dataclass(frozen=True, eq=False)
class History:
    """The rows of a run, all of which have gone through the same number of steps.

    Attributes:
        rows: at least one, each of at least one step.
        eos_token_ids: the model's.
        tokenizer: the model's; None if it has none.
    """

    rows: tuple[Row, ...]
    eos_token_ids: frozenset[int] = frozenset()
    tokenizer: Tokenizer | None = None

    @classmethod
    def recorded(cls, model: Model, prompts: Sequence[Sequence[int]], num_steps: int) -> Self:
        """The first steps of greedy runs of a model: its own logits, on its own device.

        What the history holds can be large: `num_steps` rows of logits for each prompt.

        Raises:
            InputError: a prompt has an id that the model does not have.
            ValueError: the model's context ends a row earlier.
        """
        from genkit.pipeline import Pipeline

        pipeline = Pipeline(model, stop_criteria=[])
        rows: list[Row] = []
        for prompt in prompts:
            with torch.no_grad():
                steps = list(pipeline.decode(list(prompt), max_new_tokens=num_steps))
            if len(steps) < num_steps:
                raise ValueError(f"the context ends after {len(steps)} of {num_steps} steps")
            token_ids = tuple(int(step.next_ids[0]) for step in steps)
            logits = torch.cat([step.raw_logits for step in steps])
            rows.append(Row(tuple(prompt), token_ids, logits, seed=len(rows)))
        tokenizer = getattr(model, "tokenizer", None)
        return cls(tuple(rows), frozenset(model.eos_token_ids), tokenizer)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def num_steps(self) -> int:
        """How many tokens each row has generated."""
        return len(self.rows[0].token_ids)

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self.rows[0].logits.shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self.rows[0].logits.device

    def of(self, rows: Sequence[Row]) -> Self:
        """The same run with other rows."""
        return replace(self, rows=tuple(rows))

    def logits(self, step: int) -> torch.Tensor:
        """What the tokens of a step were chosen from, a new tensor `[batch, vocab]`."""
        return torch.stack([row.logits[step] for row in self.rows])

    def next_ids(self, step: int) -> torch.Tensor:
        """The tokens chosen in a step, int64 `[batch]`."""
        return torch.tensor([row.token_ids[step] for row in self.rows], device=self.device)

    def run(self, part: str) -> Run:
        """The facts that a part of this name is bound with."""
        return Run(
            prompts=tuple(row.prompt for row in self.rows),
            seeds=tuple(row.seed for row in self.rows),
            samples=tuple(row.sample for row in self.rows),
            limits=self._limits,
            rows=tuple(range(len(self))),
            vocab_size=self.vocab_size,
            eos_token_ids=self.eos_token_ids,
            device=self.device,
            tokenizer=self.tokenizer,
            purpose=f"{part}:0",
        )

    def state(self, step: int = 0) -> GenerationState:
        """The state before a step: the prompts, and the tokens of the steps before it."""
        seeds = [row.seed for row in self.rows]
        rng = RowRandom(seeds, [row.sample for row in self.rows], self.device)
        prompts = [row.prompt for row in self.rows]
        state = GenerationState(prompts, self._limits, rng, device=self.device)
        for earlier in range(step):
            state.append(self.next_ids(earlier), self.logits(earlier))
        return state

    @property
    def _limits(self) -> tuple[int, ...]:
        return tuple(row.limit for row in self.rows)
