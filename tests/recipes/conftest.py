from typing import Literal

import pytest
from pydantic import Field, field_validator, model_validator

from genkit.backends.base import Backend
from genkit.components.base import LogitsProcessor, Sampler, StopCriterion
from genkit.kit import Kit
from genkit.plugins import hookimpl


class Fake(Backend):
    """A backend that loads nothing."""

    type: Literal["fake"] = "fake"
    model: str
    helper: Backend | None = None
    others: tuple[Backend, ...] = ()


class Scale(LogitsProcessor):
    """A processor with an option of each type."""

    type: Literal["scale"] = "scale"
    factor: float = Field(1.0, gt=0)
    count: int = 3
    enabled: bool = True
    name: str = ""
    words: tuple[str, ...] = ()
    bias: dict[int, float] = Field(default_factory=dict)
    span: float = 0.0

    @field_validator("span", mode="before")
    @classmethod
    def _seconds(cls, value):
        return float(value[:-1]) if isinstance(value, str) and value.endswith("s") else value


class Fragile(Sampler):
    """A sampler whose check has a bug."""

    type: Literal["fragile"] = "fragile"

    @model_validator(mode="after")
    def _bug(self):
        raise KeyError("oops")


class AnswerLimit(StopCriterion):
    """Bounds the answer."""

    type: Literal["answer_limit"] = "answer_limit"
    limit: int

    def bound(self, num_prompt_tokens):
        return num_prompt_tokens + self.limit


class TotalLimit(StopCriterion):
    """Bounds prompt and answer together."""

    type: Literal["total_limit"] = "total_limit"
    limit: int

    def bound(self, num_prompt_tokens):
        return self.limit


class Boundless(StopCriterion):
    """A criterion whose bound has a bug."""

    type: Literal["boundless"] = "boundless"
    says: str

    def bound(self, num_prompt_tokens):
        if self.says == "raises":
            raise KeyError("oops")
        return "text" if self.says == "text" else {1: 8}.get(num_prompt_tokens)


class Parts:
    name = "parts"

    @hookimpl
    def genkit_register_backends(self):
        return [Fake]

    @hookimpl
    def genkit_register_logits_processors(self):
        return [Scale]

    @hookimpl
    def genkit_register_samplers(self):
        return [Fragile]

    @hookimpl
    def genkit_register_stop_criteria(self):
        return [AnswerLimit, TotalLimit, Boundless]


@pytest.fixture(scope="session")
def kit():
    """A kit with fake parts beside those of genkit."""
    return Kit([Parts()], entry_points=False)


@pytest.fixture
def write(tmp_path):
    """Writes a recipe that says this after its first two lines."""

    def write(text, head="version: 1\nbackend: {type: fake, model: m}\n"):
        path = tmp_path / "recipe.yaml"
        path.write_text(head + text)
        return path

    return write
