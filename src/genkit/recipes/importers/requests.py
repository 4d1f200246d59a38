"""What requests to OpenAI's interface and to those that follow it have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genkit.recipes.importers.common import CONSTRAINT, OUTPUT
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said

_TOOLS = "genkit has no tools"
_SERVER = "it is for a server"

ASIDE: Aside = {
    "n": (1, "say --num-samples when you generate"),
    "best_of": (1, "it gives the most probable of several answers; --num-samples gives them all"),
    "response_format": ({"type": "text"}, CONSTRAINT),
    "tools": ([], _TOOLS),
    "tool_choice": ("none", _TOOLS),
    "parallel_tool_calls": (None, _TOOLS),
    "functions": ([], _TOOLS),
    "function_call": ("none", _TOOLS),
    "logprobs": (None, "say --logprobs when you generate"),
    "top_logprobs": (None, "say --logprobs when you generate"),
    "echo": (False, OUTPUT),
    "suffix": (None, "filling in the middle is no part of genkit"),
    "stream": (False, OUTPUT),
    "stream_options": (None, OUTPUT),
    "user": (None, _SERVER),
    "store": (False, _SERVER),
    "metadata": (None, _SERVER),
    "service_tier": ("auto", _SERVER),
    "reasoning_effort": (None, "it changes the prompt of a model that reasons"),
    "modalities": (["text"], "genkit makes text"),
    "audio": (None, "genkit makes text"),
    "prediction": (None, "genkit has no predicted outputs"),
    "skip_special_tokens": (True, "texts never have special tokens here"),
    "spaces_between_special_tokens": (True, "texts never have special tokens here"),
}


def write_context(given: Given, draft: Draft, default: str) -> Said:
    """The context `chat` or `text`, by what the request has; returns what says so."""
    messages = given.take("messages", read=as_messages)
    prompt = given.take("prompt", "text", read=lambda value: value)
    is_chat = messages.is_given or (default == "chat" and not prompt.is_given)
    said = messages if is_chat else prompt
    for each in (messages, prompt):
        if each.is_given:
            given.leave(each, "a recipe has no prompt; give it when you generate")
    system = system_of(messages.value or [])
    if not is_chat:
        draft.context("text", because=said)
    elif system is None:
        draft.context("chat", because=said)
    else:
        draft.context("chat", because=said, system=messages.but(system))
    return said


def write_stop_ids(given: Given, draft: Draft, ids: Said, include: Said) -> None:
    """Tokens that end the answer; their text stays in it where `include` says so."""
    if not ids.value:
        return
    draft.stop("stop_token_ids", token_ids=ids)
    if not include.value:
        given.leave(
            ids,
            f"{given.engine} leaves the text of the token out; here it stays, unless the token is "
            "a special one",
        )


def leave_model_file(
    given: Given, reader: str, switch: Said, off: str, settings: Iterable[Said]
) -> None:
    """Note that a model's own settings count where nothing is given, unless they are off."""
    missing = [said.name for said in settings if not said.is_given]
    if switch.value != off and missing:
        given.leave(
            switch,
            f"{reader} takes {', '.join(missing)} from the model's generation_config.json, where "
            f"it has them; give them as well, or {switch.name}={off}",
        )


def as_messages(value: Any) -> list[Any]:
    """The messages of a conversation."""
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return value
    raise ValueError("a list of messages is expected")


def system_of(messages: list[Any]) -> str | None:
    """What the system says at the beginning of a conversation."""
    first = messages[0] if messages else {}
    content = first.get("content") if first.get("role") == "system" else None
    return content if isinstance(content, str) else None
