"""Keys and values rounded to a few bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

__all__ = ["Packed", "Packing"]

_STEP_BITS = 16
"""Significant bits of a step: few enough that step times code is an exact float32 number."""


@dataclass(frozen=True)
class Packing:
    """Rounds each position by itself, in groups along the last dimension.

    A group of numbers x becomes whole numbers, one step for all of them, and a zero point::

        code = round(x / step) + zero           0 <= code <= 2**bits - 1
        x    ~ (code - zero) * step             off by at most step / 2

    With ``low = min(0, x)``, ``high = max(0, x)`` and ``levels = 2**bits - 1`` the step is the
    smallest for which ``-low / step <= below`` and ``high / step <= levels - below``, where `below`
    is one of ``1, ..., levels - 1``. It is rounded up to 16 significant bits, and is never less
    than the smallest normal number of its type. So 0 stays 0, nothing is clipped, and

    - ``step <= (high - low) / (levels - 1)``, up to that rounding;
    - packing what was unpacked gives the same bits in float32 and float64, because step times code
      is exact there and the end that decided the step is one of these products. In 16-bit types
      the products are rounded once more, and that adds to the bound.

    A group that holds NaN or infinity becomes NaN, so that it is still seen.

    Args:
        bits: 8, or 4: two codes a byte.
        group_size: numbers that share a step; the last group of a row may be smaller.
    """

    bits: int
    group_size: int

    @property
    def levels(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    def pack(self, states: torch.Tensor) -> Packed:
        """Round `[batch, heads, slots, dim]`."""
        groups = self._grouped(states.to(torch.promote_types(states.dtype, torch.float32)))
        steps = self._steps(groups)
        # What is not finite is kept in the step; its codes are 0.
        signed = (groups / steps).round().nan_to_num(nan=0.0)
        zeros = -signed.amin(-1, keepdim=True).clamp(max=0)
        codes = (signed + zeros).flatten(-2)[..., : states.shape[-1]].to(torch.uint8)
        return Packed(
            codes=_paired(codes) if self.bits == 4 else codes,
            steps=steps.squeeze(-1),
            zeros=zeros.squeeze(-1).to(torch.uint8),
            dim=states.shape[-1],
            dtype=states.dtype,
        )

    def unpack(self, packed: Packed) -> torch.Tensor:
        """What `pack` was given, rounded: the same shape and type."""
        codes = _parted(packed.codes, packed.dim) if self.bits == 4 else packed.codes
        signed = self._grouped(codes.to(packed.steps.dtype)) - packed.zeros[..., None]
        states = (signed * packed.steps[..., None]).flatten(-2)[..., : packed.dim]
        largest = torch.finfo(packed.dtype).max  # half a step above a number may be out of range
        return states.clamp(-largest, largest).to(packed.dtype)

    def _grouped(self, states: torch.Tensor) -> torch.Tensor:
        """`[..., dim]` to `[..., groups, size]`, with zeros at the end of the last group."""
        dim = states.shape[-1]
        size = min(self.group_size, dim)
        groups: torch.Tensor = pad(states, (0, -dim % size)).unflatten(-1, (-1, size))
        return groups

    def _steps(self, groups: torch.Tensor) -> torch.Tensor:
        """The step of each group, `[..., groups, 1]`."""
        tiny = torch.finfo(groups.dtype).tiny
        below_zero = groups.amin(-1, keepdim=True).clamp(max=0).neg()
        above_zero = groups.amax(-1, keepdim=True).clamp(min=0)
        half_range = (below_zero / 2 + above_zero / 2).clamp(min=tiny)  # the range may overflow
        share = (self.levels * (below_zero / 2 / half_range)).floor()

        def step(below: torch.Tensor) -> torch.Tensor:
            below = below.clamp(1, self.levels - 1)
            return torch.maximum(below_zero / below, above_zero / (self.levels - below))

        return _rounded_up(torch.minimum(step(share), step(share + 1)).clamp(min=tiny))


@dataclass(frozen=True)
class Packed:
    """Rounded keys or values of some slots.

    Attributes:
        codes: uint8 `[batch, heads, slots, dim]`, or `dim / 2` with two codes a byte.
        steps, zeros: `[batch, heads, slots, groups]`, float32 (float64 for float64) and uint8.
        dim, dtype: width and type of what was packed.
    """

    codes: torch.Tensor
    steps: torch.Tensor
    zeros: torch.Tensor
    dim: int
    dtype: torch.dtype

    @property
    def num_slots(self) -> int:
        """How many slots there are."""
        return self.codes.shape[2]

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.codes.nbytes + self.steps.nbytes + self.zeros.nbytes

    def append(self, other: Packed) -> Packed:
        """These slots and then the others."""
        return replace(
            self,
            codes=torch.cat((self.codes, other.codes), 2),
            steps=torch.cat((self.steps, other.steps), 2),
            zeros=torch.cat((self.zeros, other.zeros), 2),
        )

    def cut(self, num_slots: int) -> Packed:
        """The first slots; the memory of the others is given back."""
        return self._each(lambda tensor: tensor[:, :, :num_slots].clone())

    def take(self, index: torch.Tensor) -> Packed:
        """The rows `index`."""
        return self._each(lambda tensor: tensor.index_select(0, index.to(tensor.device)))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Packed:
        return replace(
            self, codes=change(self.codes), steps=change(self.steps), zeros=change(self.zeros)
        )


def _rounded_up(steps: torch.Tensor) -> torch.Tensor:
    """The next number of `_STEP_BITS` significant bits."""
    mantissa, exponent = torch.frexp(steps)
    return torch.ldexp((mantissa * 2**_STEP_BITS).ceil(), exponent - _STEP_BITS)


def _paired(codes: torch.Tensor) -> torch.Tensor:
    """Two codes of 4 bits a byte, the first of them in the low half."""
    even = pad(codes, (0, codes.shape[-1] % 2))
    return even[..., 0::2] | (even[..., 1::2] << 4)


def _parted(pairs: torch.Tensor, dim: int) -> torch.Tensor:
    """The codes in `_paired`, `dim` of them."""
    return torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)[..., :dim]
