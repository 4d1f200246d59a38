"""Padding in half precision: what is masked is left out, and nothing overflows.

The least float16 is -65504, so that two of them added, or a constant such as -1e9, are -inf, and a
row of nothing but -inf is NaN after its softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import zoo
from genkit.backends import PyTorch
from genkit.testing.laws.comparison import ROUNDINGS

TEXT = zoo.prompt(24)
LENGTHS = (2, 5, 1, 13)
NUM_STEPS = 3

each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str
)


def steps(lab: Any, model: Any, lengths: Sequence[int]) -> torch.Tensor:
    """The logits of a batch of beginnings of the text that go on, `[rows, steps, vocab]`."""
    follow = torch.tensor([TEXT[n : n + NUM_STEPS] for n in lengths])
    logits: torch.Tensor = lab.logits_along(model, [TEXT[:n] for n in lengths], follow)
    return logits


@each_dtype
@pytest.mark.parametrize("name", zoo.ATTENTION)
def test_a_padded_row_gets_what_it_gets_alone(name: str, dtype: torch.dtype, lab: Any) -> None:
    """NAN-05, NAN-08: rows of 2, 5, 1 and 13 tokens, in the prefill and in the steps after it."""
    model = zoo.shared(name, dtype)
    together = steps(lab, model, LENGTHS)
    alone = torch.cat([steps(lab, model, [n]) for n in LENGTHS])
    assert together.isfinite().all()
    errors = (together - alone).abs().amax(-1)
    rounding = ROUNDINGS[dtype] * torch.finfo(dtype).eps
    assert (errors <= rounding * alone.abs().amax(-1)).all()
    assert (alone[0] - alone[1]).abs().max() > 1  # the rows differ by more than rounding


def masks_of(lab: Any, model: Any, lengths: Sequence[int]) -> list[torch.Tensor]:
    """What the attention of each layer is told to see, in the prefill and in one step after it."""
    masks = []

    def take(layer: Any, arguments: Any, options: dict[str, Any]) -> None:
        masks.append(options["attention_mask"])

    for layer in model.module.modules():
        if type(layer).__name__.endswith("Attention"):
            layer.register_forward_pre_hook(take, with_kwargs=True)
    follow = torch.tensor([TEXT[n : n + 2] for n in lengths])
    lab.logits_along(model, [TEXT[:n] for n in lengths], follow)
    return masks


@each_dtype
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3", "phi3", "gpt_neox", "opt"])
def test_what_is_hidden_for_two_reasons_is_hidden_once(
    name: str, attention: str, dtype: torch.dtype, lab: Any
) -> None:
    """NAN-05: a row masked 0, 0, 0, 1, 1 beside one of five tokens.

    A pad that comes later is neither real nor past, and gets the same number as others. A real
    token sees itself and the real ones before it, each with exactly 0 added.
    """
    model = PyTorch.wrap(zoo.build(name, attn_implementation=attention).to(dtype))
    masks = masks_of(lab, model, [5, 2])
    assert {mask.shape[2:] for mask in masks} == {(5, 5), (1, 6)}
    starts = torch.tensor([[0], [3]])
    for mask in masks:
        num_queries, num_keys = mask.shape[2:]
        keys = torch.arange(num_keys)
        queries = keys[num_keys - num_queries :]
        past = keys <= queries[:, None]
        expected = past & (keys >= starts)[:, None]
        is_real = queries >= starts
        seen = mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] == 0
        assert torch.equal(seen[is_real], expected[is_real])
        if mask.dtype != torch.bool:
            assert mask.dtype == dtype
            assert mask[mask != 0].unique().tolist() in ([torch.finfo(dtype).min], [-torch.inf])
