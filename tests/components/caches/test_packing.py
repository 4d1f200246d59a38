"""Each number is off by at most half a step of its own group, and nothing else matters to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genkit.components.caches.packing import Packed, Packing

WIDE = (torch.float32, torch.float64)
NARROW = (torch.bfloat16, torch.float16)


@st.composite
def states(draw: Any, dtypes: tuple[torch.dtype, ...] = WIDE) -> torch.Tensor:
    """Keys or values `[1, heads, slots, dim]` of any size, tiny and huge numbers among them."""
    dtype = draw(st.sampled_from(dtypes))
    dim = draw(st.integers(1, 9))
    most = torch.finfo(dtype).max
    sizes = [0.0, 1e-45, 1e-38, 1e-30, 1e-6, 1.0, 100.0, 1e30, most]
    size = draw(st.sampled_from([size for size in sizes if size <= most]))
    numbers = st.floats(-1, 1, width=32)
    rows = draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=1, max_size=4))
    scaled = torch.tensor(rows, dtype=torch.float64) * size
    if draw(st.booleans()):
        scaled = scaled.abs()
    return scaled.to(dtype)[None, None]


packings = st.builds(Packing, st.sampled_from([8, 4]), st.integers(1, 10))


def steps_of(packing: Packing, packed: Packed) -> torch.Tensor:
    """The step of every number, in float64."""
    size = min(packing.group_size, packed.dim)
    return packed.steps.double().repeat_interleave(size, -1)[..., : packed.dim]


def same(left: Packed, right: Packed) -> bool:
    pairs = zip(vars(left).values(), vars(right).values(), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@given(packings, states())
def test_every_number_is_off_by_half_a_step_at_most(packing: Packing, given_: Any) -> None:
    packed = packing.pack(given_)
    unpacked = packing.unpack(packed)
    assert (unpacked.shape, unpacked.dtype) == (given_.shape, given_.dtype)
    error = (unpacked.double() - given_.double()).abs() / steps_of(packing, packed)
    assert error.max() <= 0.5 + 1e-4  # the quotient is rounded too


@given(packings, states(NARROW))
def test_narrow_numbers_are_rounded_once_more_to_their_own_type(
    packing: Packing, given_: Any
) -> None:
    packed = packing.pack(given_)
    unpacked = packing.unpack(packed)
    assert (unpacked.shape, unpacked.dtype) == (given_.shape, given_.dtype)
    error = (unpacked.double() - given_.double()).abs()
    info = torch.finfo(given_.dtype)
    own = unpacked.double().abs() * info.eps / 2 + info.smallest_normal * info.eps / 2
    assert (error <= (0.5 + 1e-4) * steps_of(packing, packed) + own).all()


@given(packings, states())
def test_packing_what_was_unpacked_gives_the_same_bits(packing: Packing, given_: Any) -> None:
    packed = packing.pack(given_)
    assert same(packing.pack(packing.unpack(packed)), packed)


@given(packings, states(WIDE + NARROW))
def test_a_step_is_hardly_more_than_the_range_over_the_levels(
    packing: Packing, given_: Any
) -> None:
    packed = packing.pack(given_)
    size = min(packing.group_size, given_.shape[-1])
    for group in range(packed.steps.shape[-1]):
        members = given_[..., group * size : (group + 1) * size].double()
        low, high = members.amin(-1).clamp(max=0), members.amax(-1).clamp(min=0)
        least = torch.finfo(packed.steps.dtype).tiny
        bound = (high / (packing.levels - 1) - low / (packing.levels - 1)).clamp(min=least)
        assert (packed.steps[..., group].double() <= bound * (1 + 2**-14)).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_zero_stays_zero_and_a_constant_is_kept(bits: int) -> None:
    packing = Packing(bits, 4)
    for constant in (0.0, -0.0, 1.0, -3.0, 1e-20, 3e38):
        group = torch.full((1, 1, 1, 4), constant)
        unpacked = packing.unpack(packing.pack(group))
        assert (unpacked - group).abs().max() <= abs(constant) * 2**-14
    mixed = torch.tensor([[[[0.0, -7.0, 0.0, 100.0]]]])
    assert packing.unpack(packing.pack(mixed))[..., [0, 2]].eq(0).all()


def test_whole_numbers_within_the_levels_are_kept() -> None:
    """The step of -100 ... 154 is 1: the worked example."""
    packing = Packing(8, 256)
    numbers = torch.arange(-100.0, 155.0).reshape(1, 1, 1, -1)
    packed = packing.pack(numbers)
    assert (packed.steps.item(), packed.zeros.item()) == (1.0, 100)
    assert packed.codes.flatten().tolist() == list(range(255))
    assert torch.equal(packing.unpack(packed), numbers)


def test_two_codes_share_a_byte_and_the_last_may_be_alone() -> None:
    packing = Packing(4, 8)
    packed = packing.pack(torch.tensor([[[[-7.0, 7.0, 0.0, 1.0, -2.0]]]]))
    assert packed.steps.item() == 1.0
    assert packed.codes.flatten().tolist() == [0 | 14 << 4, 7 | 8 << 4, 5]
    assert packing.unpack(packed).flatten().tolist() == [-7.0, 7.0, 0.0, 1.0, -2.0]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", WIDE + NARROW)
def test_what_is_not_finite_is_seen_in_its_group_and_in_no_other(
    bits: int, broken: float, dtype: torch.dtype
) -> None:
    packing = Packing(bits, 4)
    numbers = torch.linspace(-1, 1, 16, dtype=torch.float64).to(dtype).reshape(1, 1, 2, 8)
    spoilt = numbers.clone()
    spoilt[0, 0, 1, 2] = broken
    unpacked = packing.unpack(packing.pack(spoilt))
    assert unpacked[0, 0, 1, :4].isnan().all()
    unpacked[0, 0, 1, :4] = 0
    expected = packing.unpack(packing.pack(numbers))
    expected[0, 0, 1, :4] = 0
    assert torch.equal(unpacked, expected)


@pytest.mark.parametrize("bits", [8, 4])
def test_an_outlier_spoils_its_own_group_only(bits: int) -> None:
    """Keys and values `[1, 2, 40, 16]`, one channel a hundred times larger (CACHE-09)."""
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(1, 2, 40, 16, generator=generator)
    outlier = plain.clone()
    outlier[..., 5] *= 100
    packing = Packing(bits, 4)
    packed = packing.pack(outlier)
    error = (packing.unpack(packed) - outlier).abs()
    assert (error <= (0.5 + 1e-4) * steps_of(packing, packed)).all()
    others = [channel for channel in range(16) if not 4 <= channel < 8]
    untouched = packing.unpack(packing.pack(plain))[..., others]
    assert torch.equal(packing.unpack(packed)[..., others], untouched)


@given(packings, states(WIDE + NARROW))
def test_a_position_is_packed_as_it_is_alone(packing: Packing, given_: Any) -> None:
    together = packing.pack(given_)
    alone = [packing.pack(given_[:, :, i : i + 1]) for i in range(given_.shape[2])]
    joined = alone[0]
    for one in alone[1:]:
        joined = joined.append(one)
    assert same(joined, together)


def test_slots_and_rows_are_kept_as_asked() -> None:
    packing = Packing(4, 3)
    numbers = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    packed = packing.pack(numbers)
    cut = packed.cut(2)
    assert same(cut, packing.pack(numbers[:, :, :2]))
    assert (cut.num_slots, cut.num_bytes) == (2, 2 * 3 * 2 * (4 + 3 * 5))
    assert cut.codes.untyped_storage().nbytes() == 2 * 3 * 2 * 4  # no view of the longer one
    assert same(packed.take(torch.tensor([1, 1, 0])), packing.pack(numbers[[1, 1, 0]]))
