"""Logits that are wider than the tokenizer: ids without a token are never produced."""

from typing import Any, Literal

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from genkit import Pipeline, backends
from genkit.components.base import LogitsProcessor
from genkit.components.samplers import Categorical
from genkit.components.stopping import Eos, MaxNewTokens
from genkit.testing import ByteTokenizer, ScriptedModel

WIDTH, NUM_IDS, FAVOURITE = 64, 50, 57


class Fifty(ByteTokenizer):
    """A tokenizer with fewer ids than the model has logits."""

    vocab_size = NUM_IDS


class FirstTen(LogitsProcessor):
    """A constraint as a tokenizer's owner would write it: by the ids that the tokenizer has."""

    type: Literal["first_ten"] = "first_ten"

    def __call__(self, state: Any, logits: torch.Tensor) -> torch.Tensor:
        allowed = torch.arange(logits.shape[-1]) < 10
        return logits.masked_fill(~allowed, float("-inf"))


def favouring(*, tied: bool) -> Any:
    """A model whose first choice is an id that its tokenizer does not have."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=WIDTH,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    module = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        hidden = module.model(torch.tensor([PROMPT])).last_hidden_state[0, -1]
        module.lm_head.weight[FAVOURITE] = hidden * 100 / hidden.square().sum()
    assert (module.lm_head.weight is module.model.embed_tokens.weight) == tied
    return module


PROMPT = [1, 2, 3, 4]


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("sampler", [None, Categorical()], ids=["greedy", "categorical"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_ids_without_a_token_are_never_produced(
    tied: bool, sampler: Any, constrained: bool
) -> None:
    """VOCAB-01 and VOCAB-03."""
    module = favouring(tied=tied)
    with torch.no_grad():
        logits = module(torch.tensor([PROMPT])).logits[0, -1]
    assert int(logits.argmax()) == FAVOURITE and float(logits.max()) == pytest.approx(100)

    pipeline = Pipeline(
        backends.PyTorch.wrap(module, tokenizer=Fifty()),
        sampler=sampler,
        processors=[FirstTen()] if constrained else [],
        stop_criteria=[MaxNewTokens(limit=20)],
    )
    num_allowed = 10 if constrained else NUM_IDS
    steps = list(pipeline.decode(PROMPT, seed=1))
    assert len(steps) == 20
    assert all(int(step.next_ids) < num_allowed for step in steps)
    assert all(step.logits.shape[-1] == WIDTH for step in steps)
    if sampler is None:
        assert int(steps[0].next_ids) == int(logits[:num_allowed].argmax())


def test_an_end_token_beyond_the_tokenizer_still_ends() -> None:
    model = ScriptedModel.of_ids(
        [7, 63, 9], WIDTH, tokenizer=Fifty(), eos_token_ids=[63], context_length=40
    )
    result = Pipeline(model, stop_criteria=[Eos()]).generate([1])
    assert result.token_ids == [7, 63] and result.finish_reason == "stop"


def test_a_pipelines_own_tokenizer_counts() -> None:
    model = ScriptedModel.of_ids([63], WIDTH)
    criteria = [MaxNewTokens(limit=1)]
    assert Pipeline(model, stop_criteria=criteria).generate([1]).token_ids == [63]
    bounded = Pipeline(model, tokenizer=Fifty(), stop_criteria=criteria)
    assert bounded.generate([1]).token_ids[0] < NUM_IDS
