"""Options that are one string or several."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

__all__ = ["Strings"]


def _one_or_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_one_or_several)]
"""A list of strings; a single one is a list of one."""
