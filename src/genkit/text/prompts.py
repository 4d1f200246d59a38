"""The forms in which prompts are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from genkit.errors import InputError


def as_prompts(prompt: Any) -> tuple[list[Any], bool]:
    """The prompts of a call, and whether it was a single one.

    A single prompt is a string, a list of chat messages or a list of ids; several are a list of any
    of these.

    Raises:
        InputError: it is none of these, or there is no prompt in the list.
    """
    if isinstance(prompt, torch.Tensor):
        prompt = prompt.tolist()
    if isinstance(prompt, str) or as_ids(prompt) is not None:
        return [prompt], True
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise InputError(
            "a prompt is a string, a list of chat messages, token ids, or a list of any of these; "
            f"found {type(prompt).__name__}"
        )
    if not prompt:
        raise InputError("there is no prompt: the list is empty")
    if all(isinstance(message, Mapping) for message in prompt):
        return [prompt], True
    return list(prompt), False


def as_ids(prompt: Any) -> list[int] | None:
    """A prompt given as ids, or None if it is something else."""
    if isinstance(prompt, torch.Tensor):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes) or not prompt:
        return None
    if all(isinstance(token_id, int) and not isinstance(token_id, bool) for token_id in prompt):
        return list(prompt)
    return None
