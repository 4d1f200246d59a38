"""What another device would send in one copy is what each tensor holds."""

import math

import torch

from genkit.core.host import in_one_copy, on_host, to_host


def test_in_one_copy() -> None:
    tensors = (
        torch.tensor([0, 2**53 - 1, -1]),
        torch.tensor([[1.5], [-math.inf], [3.0e38]]),
        torch.tensor([True, False, True]),
        torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64),
    )
    assert in_one_copy(tensors) == to_host(*tensors) == [tensor.tolist() for tensor in tensors]


def test_nan_arrives() -> None:
    [values] = in_one_copy([torch.tensor([math.nan])])
    assert math.isnan(values[0])


def test_on_host() -> None:
    ids = torch.tensor([1, 2])
    assert on_host(ids, [1, 2]) is ids
    elsewhere = on_host(ids.to("meta"), [1, 2])
    assert elsewhere.tolist() == [1, 2] and elsewhere.device.type == "cpu"
