"""Models that want the wrong thing, over bytes."""

from collections.abc import Callable

import pytest
import torch

from genkit.testing import ByteTokenizer, ScriptedModel

BYTES = ByteTokenizer()
EOS = BYTES.eos_token_id


@pytest.fixture
def wanting() -> Callable[..., ScriptedModel]:
    """``wanting(b"ab", b"c")``: wants `a` or else `b` in the first step, and then always `c`.

    What is not wanted comes after that, small ids first, and the end token last of all.
    """

    def model(*steps: bytes, has_end: bool = True) -> ScriptedModel:
        script = -torch.arange(float(BYTES.vocab_size)).repeat(len(steps), 1)
        for step, wanted in zip(script, steps, strict=True):
            step[EOS] = -1000.0
            for rank, byte in enumerate(wanted):
                step[byte] = 1000.0 - rank
        end_ids = [EOS] if has_end else []
        return ScriptedModel(script, tokenizer=BYTES, eos_token_ids=end_ids)

    return model
