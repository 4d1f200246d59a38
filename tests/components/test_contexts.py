"""From prompts to ids, and prompts that do not fit."""

import pytest

from genkit.components.contexts import Chat, Text
from genkit.components.stopping import MaxNewTokens
from genkit.errors import ContextLengthError, InputError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel

BYTES = ByteTokenizer()
BOS = ByteTokenizer.bos_token_id


@pytest.mark.parametrize("of_tokenizer", [True, False])
def test_add_bos(of_tokenizer: bool) -> None:
    """CHAT-13: true puts it there once, whatever the tokenizer does; auto follows it."""
    tokenizer = ByteTokenizer(add_bos=of_tokenizer)
    assert Text(add_bos=True).encode("a", tokenizer) == [BOS, 97]
    assert Text(add_bos=False).encode("a", tokenizer) == [97]
    assert Text().encode("a", tokenizer) == ([BOS, 97] if of_tokenizer else [97])


def test_no_begin_token_to_add() -> None:
    class Without(ByteTokenizer):
        bos_token_id = None

    with pytest.raises(InputError, match="no begin token"):
        Text(add_bos=True).encode("a", Without())


def test_chat_puts_the_system_message_first_and_opens_the_answer() -> None:
    ids = Chat(system="S").encode("hi", BYTES)
    text = "".join(BYTES.token_text(i) for i in ids)
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_of_the_conversation_wins() -> None:
    messages = [{"role": "system", "content": "mine"}, {"role": "user", "content": "hi"}]
    assert Chat(system="S").messages(messages) == messages


@pytest.mark.parametrize(
    ("context", "prompt", "message"),
    [
        (Text(), "", "prompt is empty"),
        (Chat(), "", "prompt is empty"),
        (Chat(), [], "empty"),
        (Text(), [{"role": "user", "content": "x"}], r"context: \{type: chat\}"),
        (Chat(), 3, "found int"),
        (Chat(), ["x", 3], "found list"),
        (Text(), b"x", "found bytes"),
    ],
)
def test_prompts_of_the_wrong_kind(context, prompt, message: str) -> None:
    with pytest.raises(InputError, match=message):
        context.encode(prompt, BYTES)


def model(context_length: int = 32) -> ScriptedModel:
    return ScriptedModel.of_ids([1], 260, context_length=context_length, tokenizer=BYTES)


@pytest.mark.parametrize("length", [1, 30, 31])
def test_a_prompt_up_to_the_edge_of_the_context(length: int) -> None:
    """LEN-06: prompt and answer together fill the context exactly."""
    result = Pipeline(model()).generate("x" * length)
    assert length + len(result.token_ids) == 32
    assert result.finish_reason == "length" and result.stop.criterion == "context_length"


@pytest.mark.parametrize("length", [32, 33, 8000])
def test_a_prompt_beyond_the_context_is_refused_before_the_model_is_called(length: int) -> None:
    scripted = model()
    with pytest.raises(
        ContextLengthError, match=f"has {length} tokens, and at most 31 .*at most 32"
    ):
        Pipeline(scripted).generate("x" * length)
    assert scripted.num_calls == 0


@pytest.mark.parametrize("length", [1, 21, 22, 23, 100])
def test_truncate_left_makes_room_for_the_answer(length: int) -> None:
    """LEN-07, LEN-08: on ids, once, and as many new tokens as were asked for."""
    scripted = model()
    pipeline = Pipeline(
        scripted, context=Text(overflow="truncate_left"), stop_criteria=[MaxNewTokens(limit=10)]
    )
    text = "".join(chr(97 + i % 26) for i in range(length))
    result = pipeline.generate(text)
    assert BYTES.decode(result.prompt_ids) == text[-22:]
    assert len(result.token_ids) == 10


def test_truncate_left_keeps_the_begin_token() -> None:
    tokenizer = ByteTokenizer(add_bos=True)
    pipeline = Pipeline(
        model(), tokenizer=tokenizer, context=Text(overflow="truncate_left"),
        stop_criteria=[MaxNewTokens(limit=29)],
    )  # fmt: skip
    assert pipeline.generate("abcdef").prompt_ids == [BOS, *b"ef"]


def test_an_answer_that_leaves_no_room_for_a_prompt() -> None:
    pipeline = Pipeline(
        model(), context=Text(overflow="truncate_left"), stop_criteria=[MaxNewTokens(limit=32)]
    )
    with pytest.raises(InputError, match="32 tokens leaves no room"):
        pipeline.generate("abc")


def test_a_batch_names_the_prompt_that_does_not_fit() -> None:
    with pytest.raises(ContextLengthError, match="prompt 1: the prompt has 40"):
        Pipeline(model()).generate(["x", "y" * 40])
