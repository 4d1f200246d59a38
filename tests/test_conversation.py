from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from genkit.components.caches import Prefix
from genkit.components.contexts import Chat, Text
from genkit.components.samplers import Categorical
from genkit.components.stopping import Eos, MaxNewTokens, StopStrings
from genkit.conversation import Conversation
from genkit.errors import ContextLengthError, InputError, RunError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, TinyModel

END = ByteTokenizer.turn_end_id


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The models are so small that a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def say(conversation: Conversation, text: str, **options: Any) -> str:
    return "".join(chunk.text for chunk in conversation.send(text, **options))


def scripted(text: str | bytes, tokenizer: Any = None, **options: Any) -> ScriptedModel:
    ids = [*(text.encode() if isinstance(text, str) else text), END]
    return ScriptedModel.of_ids(
        ids,
        ByteTokenizer.vocab_size,
        eos_token_ids=[END, ByteTokenizer.eos_token_id],
        tokenizer=tokenizer or ByteTokenizer(),
        **options,
    )


def pipeline(model: Any, *criteria: Any, **options: Any) -> Pipeline:
    options.setdefault("context", Chat(system="Brief."))
    return Pipeline(model, stop_criteria=[Eos(), *criteria], **options)


def whole(conversation: Conversation, system: str = "Brief.") -> list[int]:
    """The prompt of the last turn, rendered at once."""
    messages = [{"role": "system", "content": system}, *conversation.messages[:-1]]
    return ByteTokenizer().encode_chat(messages)


def prompt(conversation: Conversation) -> list[int]:
    assert conversation.last_result is not None
    return conversation.last_result.prompt_ids


def test_the_ids_are_those_of_the_whole_conversation() -> None:
    conversation = Conversation(pipeline(scripted("Hello.")))
    for turn in range(4):
        assert say(conversation, f"turn {turn}") == "Hello."
        assert prompt(conversation) == whole(conversation)
    assert [m["role"] for m in conversation.messages] == ["user", "assistant"] * 4
    assert conversation.notes == []


@pytest.mark.parametrize("limit", [1, 3, 6, 7])
def test_also_where_an_answer_ends_at_its_limit(limit: int) -> None:
    conversation = Conversation(pipeline(scripted("Hello."), MaxNewTokens(limit=limit)))
    for turn in range(3):
        say(conversation, f"turn {turn}")
        assert prompt(conversation) == whole(conversation)


def test_also_where_another_end_token_was_generated() -> None:
    ids = [*b"Hi", ByteTokenizer.eos_token_id]
    model = ScriptedModel.of_ids(ids, 260, eos_token_ids=[257, END], tokenizer=ByteTokenizer())
    conversation = Conversation(pipeline(model))
    for turn in range(3):
        assert say(conversation, f"turn {turn}") == "Hi"
        assert prompt(conversation) == whole(conversation)


def test_generated_ids_are_kept_even_if_their_text_encodes_differently() -> None:
    broken = b"a\xff\xfeb"  # two bytes that are no UTF-8: their text is two replacement characters
    conversation = Conversation(pipeline(scripted(broken)))
    assert say(conversation, "one") == "a\ufffd\ufffdb"
    say(conversation, "two")
    ids = prompt(conversation)
    assert ids != whole(conversation)
    assert bytes(i for i in ids if i < 256).count(broken) == 1
    assert conversation.notes == []


class WithBos(ByteTokenizer):
    """Begins every conversation, and only there, with the begin token."""

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        return [self.bos_token_id, *super().encode_chat(messages, **options)]


def test_one_begin_token_in_total() -> None:
    conversation = Conversation(pipeline(scripted("Hi", WithBos())))
    for turn in range(3):
        say(conversation, f"turn {turn}")
        assert prompt(conversation) == [ByteTokenizer.bos_token_id, *whole(conversation)]
    assert prompt(conversation).count(ByteTokenizer.bos_token_id) == 1


class Forgetful(ByteTokenizer):
    """A template that leaves the thoughts of earlier answers out, as some models have it."""

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, continue_last: bool = False, **options: Any
    ) -> list[int]:
        shown = [
            {**m, "content": m["content"].rpartition("</think>")[2]}
            if m["role"] == "assistant" and i < len(messages) - 1
            else m
            for i, m in enumerate(messages)
        ]
        return super().encode_chat(shown, continue_last=continue_last, **options)


def test_a_template_that_rewrites_earlier_turns_is_noticed() -> None:
    tokenizer = Forgetful()
    conversation = Conversation(pipeline(scripted("<think>Hm.</think>Hello.", tokenizer)))
    say(conversation, "one")
    assert conversation.notes == []
    say(conversation, "two")
    assert "encoded anew" in conversation.notes[0]
    messages = [{"role": "system", "content": "Brief."}, *conversation.messages[:-1]]
    assert prompt(conversation) == tokenizer.encode_chat(messages)
    assert bytes(i for i in prompt(conversation) if i < 256).count(b"Hm.") == 0


class Opened(ByteTokenizer):
    """Opens every answer with words that it leaves out of finished ones."""

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        ids = super().encode_chat(messages, **options)
        return ids if options.get("continue_last") else [*ids, *b"<think></think>"]


def test_an_opening_that_finished_answers_lack_is_noticed() -> None:
    tokenizer = Opened()
    conversation = Conversation(pipeline(scripted("Hello.", tokenizer)))
    say(conversation, "one")
    say(conversation, "two")
    assert len(conversation.notes) == 1
    assert prompt(conversation) == [*whole(conversation), *b"<think></think>"]


class Refusing(ByteTokenizer):
    """A template that cannot leave an answer open."""

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, continue_last: bool = False, **options: Any
    ) -> list[int]:
        if continue_last:
            raise InputError("the template trims the end")
        return super().encode_chat(messages, **options)


def test_a_template_that_cannot_leave_an_answer_open() -> None:
    conversation = Conversation(pipeline(scripted("Hello.", Refusing())))
    say(conversation, "one")
    say(conversation, "two")
    assert len(conversation.notes) == 1
    assert prompt(conversation) == whole(conversation)


class Pairs(ByteTokenizer):
    """Decodes id 1 to two letters, so that a stop string can begin in the middle of a token."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join("lo" if i == 1 else super(Pairs, self).decode([i]) for i in token_ids)


def test_a_stop_string_is_neither_shown_nor_fed_again() -> None:
    conversation = Conversation(pipeline(scripted("Hello."), StopStrings(strings=("lo",))))
    for turn in range(3):
        assert say(conversation, f"turn {turn}") == "Hel"
        assert prompt(conversation) == whole(conversation)
    assert conversation.notes == []


def test_a_stop_string_within_a_token_begins_anew() -> None:
    model = scripted(b"Hel\x01.", Pairs())
    conversation = Conversation(pipeline(model, StopStrings(strings=("o.",))))
    for turn in range(3):
        assert say(conversation, f"turn {turn}") == "Hell"
        assert prompt(conversation) == whole(conversation)
    assert len(conversation.notes) == 2
    assert "within a token" in conversation.notes[0]


def test_a_closed_answer_stays_as_far_as_it_went() -> None:
    conversation = Conversation(pipeline(scripted("Hello.")))
    chunks: Any = conversation.send("one")
    assert next(chunks).text + next(chunks).text == "He"
    chunks.close()
    assert conversation.last_result is not None
    assert conversation.last_result.finish_reason == "cancelled"
    assert conversation.messages[-1] == {"role": "assistant", "content": "He"}
    say(conversation, "two")
    assert prompt(conversation) == whole(conversation)
    assert conversation.notes == []


class Failing:
    """A model that raises at one of its calls, once."""

    def __init__(self, inner: ScriptedModel, call: int, error: BaseException) -> None:
        self.inner, self.call, self.error = inner, call, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        self.call -= 1
        if self.call == -1:
            raise self.error
        return self.inner(input_ids, cache)


class Counting:
    """A cache manager that counts what has been handed out and not come back."""

    def __init__(self) -> None:
        self.num_out = 0

    def acquire(self, model: Any, state: Any) -> Any:
        self.num_out += 1
        return model.new_cache(state)

    def release(self, cache: Any, state: Any) -> None:
        self.num_out -= 1


class Wrapping:
    """A plugin's wrapper around a model that turns every exception into one of its own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        try:
            return self.inner(input_ids, cache)  # type: ignore[no-any-return]
        except Exception as error:
            raise RunError("something unknown happened") from error


def test_an_interrupt_reaches_the_caller_and_keeps_the_answer_so_far() -> None:
    model = Wrapping(Failing(scripted("Hello."), 2, KeyboardInterrupt()))
    cache = Counting()
    conversation = Conversation(pipeline(model, cache=cache))
    with pytest.raises(KeyboardInterrupt):
        say(conversation, "one")
    assert cache.num_out == 0
    assert conversation.last_result is not None
    assert conversation.last_result.finish_reason == "cancelled"
    assert conversation.messages[-1]["content"] == "He"
    assert say(conversation, "two") == "Hello."
    assert prompt(conversation) == whole(conversation)


def test_an_interrupt_before_the_first_letter_withdraws_the_message() -> None:
    model = Failing(scripted("Hello."), 0, KeyboardInterrupt())
    conversation = Conversation(pipeline(model))
    with pytest.raises(KeyboardInterrupt):
        say(conversation, "one")
    assert conversation.messages == []
    say(conversation, "two")
    assert prompt(conversation) == whole(conversation)


def test_a_failure_leaves_the_conversation_as_it_was() -> None:
    model = Failing(scripted("Hello."), 9, RunError("broken"))
    conversation = Conversation(pipeline(model))
    say(conversation, "one")
    before = list(conversation.messages)
    with pytest.raises(RunError):
        say(conversation, "two")
    assert conversation.messages == before
    say(conversation, "three")
    assert prompt(conversation) == whole(conversation)


def test_refusals_leave_the_conversation_as_it_was() -> None:
    conversation = Conversation(pipeline(scripted("Hello.", context_length=100)))
    say(conversation, "one")
    before = list(conversation.messages)
    with pytest.raises(InputError, match="empty"):
        conversation.send("")
    with pytest.raises(ContextLengthError):
        conversation.send("x" * 100)
    assert conversation.messages == before
    say(conversation, "two")
    assert prompt(conversation) == whole(conversation)


def test_an_overlong_conversation_is_cut_on_the_left_if_the_context_says_so() -> None:
    context = Chat(overflow="truncate_left")
    conversation = Conversation(
        pipeline(scripted("Hello.", context_length=60), MaxNewTokens(limit=10), context=context)
    )
    for turn in range(4):
        assert say(conversation, f"turn {turn}") == "Hello."
    ids = prompt(conversation)
    assert len(ids) == 50
    assert bytes(i for i in ids if i < 256).endswith(b"user\nturn 3\nassistant\n")


def test_every_turn_has_the_next_seed() -> None:
    conversation = Conversation(
        pipeline(TinyModel(), MaxNewTokens(limit=4), sampler=Categorical()), seed=2**64 - 1
    )
    seeds = []
    for _ in range(3):
        say(conversation, "hi")
        assert conversation.last_result is not None
        seeds.append(conversation.last_result.seed)
    assert seeds == [2**64 - 1, 0, 1]
    say(conversation, "hi", seed=99)
    assert conversation.last_result.seed == 99


def test_a_conversation_repeats_under_its_seed() -> None:
    def answers(seed: int | None) -> list[str]:
        parts = pipeline(TinyModel(), MaxNewTokens(limit=6), sampler=Categorical())
        conversation = Conversation(parts, seed=seed)
        return [say(conversation, text) for text in ("one", "two", "three")]

    assert answers(5) == answers(5)
    assert answers(5) != answers(6)
    assert answers(None) != answers(None)


def test_the_answers_are_those_of_the_whole_conversation() -> None:
    model = TinyModel(context_length=400, eos_token_ids=[END])
    parts = pipeline(model, MaxNewTokens(limit=12))
    conversation = Conversation(parts)
    for text in ("one", "two", "three"):
        say(conversation, text)
        alone = parts.generate(prompt(conversation))
        assert conversation.last_result is not None
        assert conversation.last_result.token_ids == alone.token_ids


def test_earlier_messages_and_reset() -> None:
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    conversation = Conversation(pipeline(scripted("Hello.")), earlier)
    say(conversation, "one")
    assert prompt(conversation) == whole(conversation)
    assert len(conversation.messages) == 4
    assert len(earlier) == 2
    conversation.reset()
    assert conversation.messages == []
    say(conversation, "two")
    assert prompt(conversation) == whole(conversation)
    assert conversation.notes == []


def test_observers_of_the_pipeline_still_see_every_turn() -> None:
    class Counter:
        runs = 0

        def genkit_run_finished(self, run: object, results: object) -> None:
            self.runs += 1

    counter = Counter()
    conversation = Conversation(pipeline(scripted("Hi"), observers=[counter]))
    say(conversation, "one")
    say(conversation, "two")
    assert counter.runs == 2


def test_it_needs_the_context_chat_and_a_tokenizer() -> None:
    with pytest.raises(UnsupportedError, match="needs the context 'chat', found 'text'"):
        Conversation(pipeline(scripted("Hi"), context=Text()))
    with pytest.raises(UnsupportedError, match="tokenizer"):
        Conversation(pipeline(ScriptedModel([[0.0, 1.0]])))


class Spy(TinyModel):
    """Takes down the ids that it is fed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(context_length=1024, **options)
        self.fed: list[list[int]] = []

    def last(self, input_ids: torch.Tensor, cache: Any, n: int) -> torch.Tensor:
        self.fed.append(input_ids[0].tolist())
        return super().last(input_ids, cache, n)


def turn_ids(text: str) -> list[int]:
    """The end of an answer and the next turn, up to the opening of the next answer."""
    return [END, *b"\n", *ByteTokenizer().encode_chat([{"role": "user", "content": text}])]


@pytest.mark.parametrize("window", [None, 8])
def test_with_prefixes_a_turn_feeds_its_own_tokens(window: int | None) -> None:
    model = Spy(window=window)
    cached = Conversation(pipeline(model, MaxNewTokens(limit=5), cache=Prefix()))
    plain = Conversation(pipeline(Spy(window=window), MaxNewTokens(limit=5)))
    last: list[int] = []
    for turn in range(4):
        model.fed = []
        assert say(cached, f"turn {turn}") == say(plain, f"turn {turn}")
        assert prompt(cached) == prompt(plain)
        # The last token of an answer had not been fed when the answer ended.
        expected = [*last, *turn_ids(f"turn {turn}")] if turn else prompt(cached)
        assert model.fed[0] == expected
        assert [len(fed) for fed in model.fed[1:]] == [1] * 4
        assert cached.last_result is not None
        last = cached.last_result.token_ids[-1:]


def test_with_prefixes_an_end_token_is_not_fed_twice() -> None:
    first = Conversation(pipeline(Spy(), MaxNewTokens(limit=3)))
    say(first, "one")
    assert first.last_result is not None
    ending = first.last_result.token_ids[2]
    model = Spy(eos_token_ids=[ending])
    conversation = Conversation(pipeline(model, MaxNewTokens(limit=9), cache=Prefix()))
    say(conversation, "one")
    assert conversation.last_result is not None
    assert conversation.last_result.token_ids == first.last_result.token_ids
    model.fed = []
    say(conversation, "two")
    assert model.fed[0] == turn_ids("two")


def test_with_prefixes_messages_feed_what_differs() -> None:
    model = Spy()
    cached = pipeline(model, MaxNewTokens(limit=5), cache=Prefix())
    plain = pipeline(Spy(), MaxNewTokens(limit=5))
    user, other = ({"role": "user", "content": text} for text in ("one two", "one three"))
    answer = {"role": "assistant", "content": "said"}

    def fed(messages: list[Any]) -> int:
        model.fed = []
        assert cached.generate(messages).token_ids == plain.generate(messages).token_ids
        return len(model.fed[0])

    fed([user])
    assert fed([user]) == 1
    # Special ids are written `<`: both begin with the system message and "one t".
    assert fed([other]) == len("hree<\n<assistant\n")
    assert fed([other, answer, user]) == len("said<\n<user\none two<\n<assistant\n")
