"""Fixtures for the tests of plugins: `kit` and `scripted_model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from genkit.kit import Kit
    from genkit.testing.scripted_model import ScriptedModel


@pytest.fixture
def kit() -> Kit:
    """A kit with the built-in parts only; ``Kit(plugins=[...])`` adds others."""
    from genkit.kit import Kit

    return Kit(entry_points=False)


@pytest.fixture
def scripted_model() -> Callable[..., ScriptedModel]:
    """Makes a model that prefers the ids you list: ``scripted_model([3, 1], vocab_size=8)``."""
    from genkit.testing.scripted_model import ScriptedModel

    def make(token_ids: list[int], vocab_size: int = 260, **options: Any) -> ScriptedModel:
        return ScriptedModel.of_ids(token_ids, vocab_size, **options)

    return make
