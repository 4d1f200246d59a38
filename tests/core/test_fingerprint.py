from __future__ import annotations

from typing import Any

import pytest
import torch

from genkit.core.fingerprint import fingerprint_of, version_of


def of(*tensors: torch.Tensor, **facts: Any) -> str:
    return fingerprint_of(facts, [(f"w{i}", tensor) for i, tensor in enumerate(tensors)])


def test_equal_values_are_equal_however_they_lie_in_memory() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    assert of(weight) == of(weight.t().contiguous().t()) == of(weight.clone())
    assert len(of(weight)) == 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_every_type_and_shape_can_be_read(dtype: torch.dtype) -> None:
    tensors = [torch.ones(shape, dtype=dtype) for shape in ((), (0,), (1,), (2, 3), (3, 2))]
    assert len({of(tensor) for tensor in tensors}) == len(tensors)


def test_every_difference_shows() -> None:
    weight = torch.arange(6.0)
    other = weight.clone()
    other[3] = torch.nextafter(other[3], torch.tensor(9.0))
    prints = [
        of(weight),
        of(other),
        of(weight.to(torch.int32)),
        of(weight.view(torch.int32)),
        of(weight.reshape(2, 3)),
        of(weight, weight),
        of(weight[:3], weight[3:]),
        of(weight, window=8),
        of(weight, window=9),
        fingerprint_of({}, [("v0", weight)]),
    ]
    assert len(set(prints)) == len(prints)


def test_facts_have_no_order_and_any_type() -> None:
    assert of(a=1, b=torch.float32) == of(b=torch.float32, a=1)
    assert of(b=torch.float32) != of(b=torch.float64)


def test_a_version_changes_with_every_way_of_writing() -> None:
    module = torch.nn.Linear(3, 4)

    def version() -> int:
        return version_of(module.named_parameters())

    seen = [version()]
    assert version() == seen[0]
    with torch.no_grad():
        module.weight.mul_(2)
        seen.append(version())
        module.bias[1] = 0.0
        seen.append(version())
    module.load_state_dict({name: t.clone() for name, t in module.state_dict().items()})
    seen.append(version())
    module.weight = torch.nn.Parameter(module.weight.detach().clone())
    seen.append(version())
    module.double()
    seen.append(version())
    assert len(set(seen)) == len(seen)


def test_tensors_of_inference_mode_have_a_version_too() -> None:
    with torch.inference_mode():
        weight = torch.ones(3)
    assert version_of([("w", weight)]) == version_of([("w", weight)])
    assert version_of([("w", weight)]) != version_of([("w", torch.ones(3))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_what_pytorch_does_not_count_shows_in_the_values(dtype: torch.dtype) -> None:
    weight = torch.zeros((5, 100), dtype=dtype)
    before = version_of([("w", weight)])
    weight.data[:] = 1
    assert version_of([("w", weight)]) != before
    with torch.inference_mode():
        inside = torch.ones(7, dtype=dtype)
        before = version_of([("w", inside)])
        inside.zero_()
    assert version_of([("w", inside)]) != before


def test_no_number_is_a_version_of_its_own() -> None:
    for weight in (torch.full((3,), torch.nan), torch.empty(0), torch.tensor(1.0)):
        assert version_of([("w", weight)]) == version_of([("w", weight)])
