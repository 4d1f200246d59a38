"""What is added to a logit: a number, or -inf, which forbids."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

__all__ = ["LARGEST_BIAS", "Bias"]

LARGEST_BIAS = 1e6
"""Beyond it float32 would lose the logit itself, and tokens that differ would become equal."""


def _read(value: Any) -> float | str:
    """A number of moderate size, or `-inf` in any spelling; in files it is the text `-inf`."""
    if value is None:
        return "-inf"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a bias is a number, or -inf to forbid")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError("a bias is a number, or -inf to forbid") from None
    if number == -math.inf:
        return "-inf"
    if not abs(number) <= LARGEST_BIAS:
        raise ValueError("a bias lies between -1e6 and 1e6; to forbid write -inf")
    return number


_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": -LARGEST_BIAS, "maximum": LARGEST_BIAS},
        {"enum": ["-inf", None]},
    ]
}

Bias = Annotated[float | Literal["-inf"], BeforeValidator(_read), WithJsonSchema(_SCHEMA)]
"""`float(bias)` is the number. JSON has no infinity: `"-inf"` and `null` are read as that."""
