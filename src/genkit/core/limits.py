"""How long a prompt may be, and how far its row may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from genkit.core.contracts import place_of
from genkit.errors import FAILURES, InputError, PartError, UnsupportedError


class Limits:
    """The bounds of a row: the model's context length and what the stop criteria say.

    A bound that grows with the prompt limits the answer; any other limits prompt and answer
    together.

    Args:
        context_length: of the model; None if it has none.
        stop_criteria: those with a method ``bound(num_prompt_tokens)`` count.
        num_prompt_tokens: the length of the row's prompt, before anything is cut from it.

    Raises:
        UnsupportedError: nothing bounds the run.
    """

    def __init__(
        self, context_length: int | None, stop_criteria: Sequence[Any], num_prompt_tokens: int
    ) -> None:
        bounds = list(_bounds(stop_criteria, num_prompt_tokens))
        self.answers = [most - num_prompt_tokens for most, grows in bounds if grows]
        self.totals = [most for most, grows in bounds if not grows]
        if context_length is not None:
            self.totals.append(context_length)
        if not bounds and context_length is None:
            raise UnsupportedError(
                "nothing bounds this run: the model states no context length and no stop "
                "criterion limits the tokens; add `{type: max_new_tokens, limit: ...}`"
            )

    def __str__(self) -> str:
        """The limits in words."""
        words = []
        if self.totals:
            words.append(f"prompt and answer together have at most {min(self.totals)}")
        if self.answers:
            words.append(f"the answer has at most {min(self.answers)}")
        return ", ".join(words)

    def limit(self, num_prompt_tokens: int) -> int:
        """The most tokens that the row may reach with a prompt of this length, prompt included."""
        return min([*self.totals, *(num_prompt_tokens + answer for answer in self.answers)])

    def longest_prompt(self, *, make_room: bool) -> int | None:
        """The most tokens of a prompt that leave room for an answer; None: no limit.

        Args:
            make_room: for as many tokens as are asked for; otherwise one must be able to follow.

        Raises:
            InputError: the answer alone fills the context.
        """
        if not self.totals:
            return None
        most = min(self.totals)
        room = min(self.answers, default=1) if make_room else 1
        if room >= most:
            raise InputError(
                f"an answer of {room} tokens leaves no room for a prompt: prompt and answer "
                f"together have at most {most}; ask for less with max_new_tokens"
            )
        return most - room


def _bounds(stop_criteria: Sequence[Any], n: int) -> Iterator[tuple[int, bool]]:
    """The bound of each criterion for a prompt of `n` tokens, and whether it grows with it."""
    for criterion in stop_criteria:
        bound = getattr(criterion, "bound", None)
        if bound is None:
            continue
        try:
            most, next_most = bound(n), bound(n + 1)
            if most is not None:
                yield int(most), next_most > most
        except FAILURES as error:
            what = f"{type(error).__name__}: {error}"
            place = place_of("stop_criteria", criterion)
            raise PartError(f"{place} raised {what} in `bound`") from error
