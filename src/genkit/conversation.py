"""A conversation that goes on with the very ids it has generated.

Text turned back into ids need not give the ids it came from. So nothing that was generated is
encoded again: the prompt of a turn is the prompt before it, the generated ids, and the ids that the
template puts between that answer and the next one. A cache that holds the conversation so far is
then of use for all of it.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from genkit.components.contexts import Chat
from genkit.core.contracts import name_of
from genkit.core.result import Result
from genkit.errors import InputError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.text.stream import Detokenizer
from genkit.text.tokenizer import Tokenizer
from genkit.text.transcript import Chunk

__all__ = ["Conversation", "check_context"]

_REWRITTEN = (
    "the chat template renders earlier turns differently now, so the conversation was encoded anew"
)
_CUT = "the last answer was cut within a token, so the conversation was encoded anew"

Message = Mapping[str, Any]


class Conversation:
    """Turns of a user and a model; see `send`.

    An answer that is interrupted stays as far as it went. A turn that fails, or is interrupted
    before its first letter, leaves no trace.

    Args:
        pipeline: its context must be `chat`.
        messages: what has been said before; it ends with an answer, if with anything.
        seed: the seed of the first turn, and each later turn has the next one, so that a whole
            conversation repeats. By default the pipeline's, and without one every turn draws its
            own.

    Attributes:
        messages: what has been said: ``{"role": ..., "content": ...}``, without the system message
            that the context adds.
        last_result: the result of the last turn; `cancelled` if it was interrupted.
        notes: what a person should know about the turns so far, one line each.

    Raises:
        UnsupportedError: the context is not `chat`, or there is no tokenizer.
    """

    def __init__(
        self, pipeline: Pipeline, messages: Sequence[Message] = (), *, seed: int | None = None
    ) -> None:
        self.messages: list[Message] = list(messages)
        self.last_result: Result | None = None
        self.notes: list[str] = []
        self._pipeline = pipeline
        self._context = check_context(pipeline.context)
        self._tokenizer = _tokenizer(pipeline)
        self._seed = pipeline.seed if seed is None else seed
        self._num_turns = 0
        self._kept: list[int] = []  # the last prompt and the ids generated after it
        self._rendered: list[int] = []  # what the template made of that prompt

    def send(
        self, text: str, *, seed: int | None = None, max_new_tokens: int | None = None
    ) -> Iterator[Chunk]:
        """Say something; the answer comes piece by piece.

        Everything is checked at the call, before the first piece is asked for. Close the iterator,
        or interrupt it, to end the answer early: what there is of it stays in the conversation.

        Raises:
            InputError: the message is empty, or the conversation no longer fits into the context.
            RunError: the run failed; the conversation is as it was before.
        """
        if not text:
            raise InputError("the message is empty; say something")
        asked = [*self.messages, {"role": "user", "content": text}]
        rendered = self._render(asked)
        suffix = self._suffix(rendered)
        prompt_ids = rendered if suffix is None else [*self._kept, *suffix]
        self.last_result = None
        recorder = _Recorder()
        pipeline = copy.copy(self._pipeline)
        pipeline.observers = (*pipeline.observers, recorder)
        chunks = pipeline.stream(
            prompt_ids, seed=self._next_seed(seed), max_new_tokens=max_new_tokens
        )
        if suffix is None and self._rendered:
            self.notes.append(_REWRITTEN if self._kept else _CUT)
        return self._answer(chunks, recorder, asked, rendered)

    def reset(self) -> None:
        """Forget everything that has been said."""
        self.messages.clear()
        self.last_result = None
        self._kept, self._rendered = [], []

    def _answer(
        self,
        chunks: Iterator[Chunk],
        recorder: _Recorder,
        asked: list[Message],
        rendered: list[int],
    ) -> Generator[Chunk]:
        self._num_turns += 1
        try:
            yield from chunks
        finally:
            result = recorder.result
            self.last_result = result
            if result is not None and (result.token_ids or result.stop is not None):
                self._keep(result, asked, rendered)

    def _keep(self, result: Result, asked: list[Message], rendered: list[int]) -> None:
        """The turn is over: its answer becomes part of the conversation."""
        self.messages = [*asked, {"role": "assistant", "content": result.text}]
        answer = self._ids_of_text(result)
        # Without ids that give exactly the text that was shown, the next turn begins anew.
        self._kept = [] if answer is None else [*result.prompt_ids, *answer]
        self._rendered = rendered

    def _ids_of_text(self, result: Result) -> list[int] | None:
        """The generated ids that make up the answer's text, the token that ended it left out.

        A stop string that was cut from the text may have begun in the middle of a token. Then there
        are no such ids.
        """
        ids = result.token_ids
        if result.stop is None or result.stop.text_end is None:
            return ids[:-1] if ids and ids[-1] in self._hidden else ids
        stream = Detokenizer(self._tokenizer, self._hidden)
        text = ""
        for count, token_id in enumerate(ids):
            if text == result.text:
                return ids[:count]
            text += stream.push(token_id)
        return ids if text == result.text else None

    @property
    def _hidden(self) -> frozenset[int]:
        """Ids that give no text."""
        return self._tokenizer.special_token_ids | frozenset(self._pipeline.model.eos_token_ids)

    def _suffix(self, rendered: list[int]) -> list[int] | None:
        """What follows the ids kept, up to the opening of the next answer; None: begin anew.

        `rendered` is the whole conversation with the new message. It goes on from what was there if
        it begins with the conversation that ends in the last answer, and that with the last prompt.
        """
        if not self._kept:
            return None
        try:
            before = self._render(self.messages, continue_last=True)
        except InputError:  # the template cannot leave this answer open, or rewrites it
            return None
        if not (_begins_with(rendered, before) and _begins_with(before, self._rendered)):
            return None
        return rendered[len(before) :]

    def _render(self, messages: Sequence[Message], continue_last: bool = False) -> list[int]:
        return self._tokenizer.encode_chat(
            self._context.messages(list(messages)),
            continue_last=continue_last,
            raw_special_tokens=self._context.raw_special_tokens,
        )

    def _next_seed(self, seed: int | None) -> int | None:
        if seed is not None or self._seed is None:
            return seed
        return (self._seed + self._num_turns) % 2**64


class _Recorder:
    """An observer that takes down how a run ended, also one that was given up."""

    result: Result | None = None

    def genkit_run_finished(self, run: object, results: Sequence[Result]) -> None:
        self.result = results[0]

    def genkit_run_failed(self, run: object, error: BaseException) -> None:
        if not isinstance(error, Exception):  # an interrupt: what there is counts
            self.result = error.partial_results[0]  # type: ignore[attr-defined]


def check_context(context: object) -> Chat:
    """The context itself, if a conversation can have it.

    Raises:
        UnsupportedError: it is not `chat`.
    """
    if isinstance(context, Chat):
        return context
    raise UnsupportedError(
        f"a conversation needs the context 'chat', found {name_of(context)!r}; write "
        "`context: {type: chat}`"
    )


def _tokenizer(pipeline: Pipeline) -> Tokenizer:
    if pipeline.tokenizer is None:
        raise UnsupportedError(
            "a conversation is text, and this model has no tokenizer; give the pipeline one"
        )
    return pipeline.tokenizer


def _begins_with(ids: Sequence[int], beginning: Sequence[int]) -> bool:
    return ids[: len(beginning)] == beginning
