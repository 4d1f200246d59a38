"""Options that are one string or several."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

__all__ = ["Strings"]


def _one_or_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _is_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "half a surrogate pair stands for no character, so no text has it"
        ) from None
    return value


Text = Annotated[str, AfterValidator(_is_text)]
Strings = Annotated[tuple[Text, ...], BeforeValidator(_one_or_several)]
"""A list of strings; a single one is a list of one."""
