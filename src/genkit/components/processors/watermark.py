"""A mark in the choice of tokens, which a detector finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from genkit.components.base import LogitsProcessor
from genkit.components.processors.green_list import GreenList
from genkit.components.processors.synthid import SynthID
from genkit.components.rowless import Rowless
from genkit.core.run import Run

_SCHEMES: dict[str, type[GreenList] | type[SynthID]] = {"green_list": GreenList, "synthid": SynthID}


class Watermark(LogitsProcessor):
    """Marks the answer, so that whoever knows the secret can tell that a model wrote it.

    ``scheme: {type: green_list, ...}`` adds a bias to a share of the vocabulary that the tokens
    before choose (Kirchenbauer et al. 2023, with the hashes and numbers of transformers):
    ``l' = l + bias`` for green tokens. `ratio` 0.25, `bias` 2.0, `hashing_key` 15485863, `seeding`
    `lefthash` or `selfhash`, `context_width` 1.

    ``scheme: {type: synthid, keys: [...], ...}`` lets tokens compete by hashed bits, one round a
    key, and on average over keys keeps the distribution (Dathathri et al. 2024, as in
    transformers): ``p' = p * (1 + g - sum(g * p))``. `ngram_len` 5, `sampling_table_size` 65536,
    `sampling_table_seed` 0, `context_history_size` 1024, `skip_first_ngram_calls` false. It needs
    a sampler that draws.

    Both are made for the end of the list. transformers applies them after truncation, so that they
    only choose among the tokens that are left. A forbidden token stays forbidden. The same ids are
    marked on every device, and its detectors find marks made here, if they work on the CPU.

    >>> from genkit.testing import process
    >>> part = Watermark(scheme={"type": "green_list", "ratio": 0.5, "bias": 2.0})
    >>> process(part, [1.0, 3.0, 2.0, 2.0], prompt=[1])
    [3.0, 3.0, 4.0, 2.0]
    """

    type: Literal["watermark"] = "watermark"

    scheme: GreenList | SynthID = Field(
        discriminator="type",
        description="{type: green_list, ...} or {type: synthid, keys: [...], ...}",
    )

    @field_validator("scheme", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any) -> Any:
        """Options of one scheme, so that an error is about one of them."""
        scheme = _SCHEMES.get(str(value.get("type"))) if isinstance(value, Mapping) else None
        return value if scheme is None else scheme.model_validate(dict(value))

    def bind(self, run: Run) -> Rowless | None:
        """What the scheme does in this run."""
        return self.scheme.bind(run)
