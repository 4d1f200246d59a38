"""The last token, compared with a few ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genkit.components.base import check_token_ids
from genkit.components.rowless import Rowless
from genkit.core.run import Run
from genkit.core.state import GenerationState
from genkit.errors import InputError


class TokenMatch(Rowless):
    """Is the last token one of these?"""

    def __init__(self, name: str, token_ids: Sequence[int], run: Run) -> None:
        try:
            check_token_ids(name, token_ids, run.vocab_size)
        except InputError as error:
            raise InputError(f"{error}. To end at no token, leave the part out") from None
        super().__init__(name)
        self.token_ids = torch.tensor(list(token_ids), device=run.device)
        self.is_single = len(token_ids) == 1

    def __call__(self, state: GenerationState) -> torch.Tensor:
        if self.is_single:  # the usual case, several times faster
            return state.last_ids == self.token_ids
        return torch.isin(state.last_ids, self.token_ids)

    def report(self, state: GenerationState, i: int) -> dict[str, Any]:
        generated = state.generated_row(i)
        return {"matched": int(generated[-1]), "position": len(generated) - 1}
