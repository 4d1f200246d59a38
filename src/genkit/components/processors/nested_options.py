"""A group of options that is the value of one option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from genkit.errors import nearest

__all__ = ["NestedOptions"]


class NestedOptions(BaseModel):
    """Base of such groups: frozen, and an option that does not exist is refused by its name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, value: Any) -> Any:
        for name in value if isinstance(value, Mapping) else ():
            if name not in cls.model_fields:
                options = sorted(cls.model_fields)
                close = nearest(str(name), options)
                known = ", ".join(options)
                raise ValueError(f"there is no option {name!r}{close}; options: {known}")
        return value
