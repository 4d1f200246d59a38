"""Which tokens followed which contexts, found in a time that does not grow with the text."""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["SuffixAutomaton"]

_ROOT, _NONE = 0, -1


class _Step(NamedTuple):
    """What one more token changed, so that it can be taken back."""

    token_id: int
    short: int  # the states of the endings before it
    long: int
    num_states: int
    known: int  # the state of the longest ending that the token had followed already
    split: int  # the state that was split in two
    places: tuple[int, ...]  # where the contexts that end with it came before


class SuffixAutomaton:
    """A text that grows token by token, and what followed each of its contexts.

    A context is a sequence of tokens that came. A state stands for all contexts that end at the
    same places of the text; there are at most two states a token. From each state a link leads to
    that of the longest shorter ending of its contexts that also comes elsewhere, so that links pass
    all endings of the text, the longest first. One more token changes a few states (Blumer et al.
    1985). Contexts longer than is asked for are left out, so that in the worst text, too, it is no
    more than `longest`.

    Args:
        shortest, longest: of which lengths contexts are asked for.
        with_places: whether it is asked for what followed since some place.

    Attributes:
        size: the number of tokens.
    """

    def __init__(self, shortest: int, longest: int, *, with_places: bool = False) -> None:
        self.size = 0
        self._shortest, self._longest, self._with_places = shortest, longest, with_places
        # By state: its longest context, its link, the state after each token that followed, and
        # the index of the last token of its contexts where they came last.
        self._lengths = [0]
        self._links = [_NONE]
        self._next: list[dict[int, int]] = [{}]
        self._places = [_NONE]
        # The states of the endings of the text of at most `shortest` and `longest` tokens.
        self._short = self._long = _ROOT
        self._steps: list[_Step] = []

    def followers(self, longest: int, since: int = 0) -> dict[int, int]:
        """What followed the endings of the text where they came before.

        Args:
            longest: of which length endings count at most; that of the automaton binds, too.
            since: the index of the first token that counts; it needs `with_places`.

        Returns:
            For each id the length of the longest ending that it followed. The empty ending is
            followed by every token but the first that counts.
        """
        found: dict[int, int] = {}
        every = self._next[self._short]
        state, upper = self._long, min(self.size, self._longest)
        while upper >= self._shortest and len(found) < len(every):
            link = self._links[state]
            lower = _NONE if link == _NONE else self._lengths[link]  # its contexts are longer
            length = min(upper, longest)
            if length > lower and length >= self._shortest:
                self._collect(found, state, lower, length, since)
            state, upper = link, lower
        return found

    def _collect(
        self, found: dict[int, int], state: int, lower: int, length: int, since: int
    ) -> None:
        """Add what followed the contexts of one state, longer than `lower`."""
        if not self._with_places:
            for token_id in self._next[state]:
                found.setdefault(token_id, length)
            return
        for token_id, after in self._next[state].items():
            if token_id not in found and self._places[after] > since:
                fitting = min(length, self._places[after] - since)
                if fitting > lower and fitting >= self._shortest:
                    found[token_id] = fitting

    def push(self, token_id: int) -> None:
        """Add a token to the text."""
        short, long, num_states = self._short, self._long, len(self._links)
        known, split = self._extend(token_id)
        self._short = self._follow(short, token_id, self._shortest)
        self._long = self._follow(long, token_id, self._longest)
        places = self._note_places(self._next[long][token_id]) if self._with_places else ()
        self._steps.append(_Step(token_id, short, long, num_states, known, split, places))
        self.size += 1

    def pop(self) -> None:
        """Take back the last token."""
        step = self._steps.pop()
        state = self._next[step.long][step.token_id]
        for place in step.places:
            self._places[state] = place
            state = self._links[state]
        if step.split != _NONE:
            shorter = len(self._links) - 1
            self._links[step.split] = self._links[shorter]
            self._redirect(step.known, step.token_id, shorter, step.split)
        state = step.long
        while state != step.known:
            del self._next[state][step.token_id]
            state = self._links[state]
        for column in (self._lengths, self._links, self._next, self._places):
            del column[step.num_states :]
        self._short, self._long = step.short, step.long
        self.size -= 1

    def copy(self) -> Self:
        """An independent one of the same text."""
        other = type(self)(self._shortest, self._longest, with_places=self._with_places)
        other.size = self.size
        other._lengths, other._links = self._lengths.copy(), self._links.copy()
        other._next = [after.copy() for after in self._next]
        other._places = self._places.copy()
        other._short, other._long = self._short, self._long
        other._steps = self._steps.copy()
        return other

    def _extend(self, token_id: int) -> tuple[int, int]:
        """Let a token follow the endings of the text; what `_Step` calls `known` and `split`."""
        length = min(self.size, self._longest) + 1  # of the longest context that ends with it
        known = self._long
        while known != _NONE and token_id not in self._next[known]:
            known = self._links[known]
        new = _NONE
        if known != self._long:
            new = self._add_state(length, _ROOT, {}, _NONE)
            state = self._long
            while state != known:
                self._next[state][token_id] = new
                state = self._links[state]
        if known == _NONE:
            return known, _NONE
        after, split = self._separate(known, token_id, min(length, self._lengths[known] + 1))
        if new != _NONE:
            self._links[new] = after
        return known, split

    def _separate(self, known: int, token_id: int, length: int) -> tuple[int, int]:
        """The state of contexts up to this length that the token ends, and that it was split from.

        They come at one more place now, and longer ones do not.
        """
        after = self._next[known][token_id]
        if length == self._lengths[after]:
            return after, _NONE
        shorter = self._add_state(
            length, self._links[after], self._next[after].copy(), self._places[after]
        )
        self._links[after] = shorter
        self._redirect(known, token_id, after, shorter)
        return shorter, after

    def _add_state(self, length: int, link: int, after: dict[int, int], place: int) -> int:
        self._lengths.append(length)
        self._links.append(link)
        self._next.append(after)
        self._places.append(place)
        return len(self._lengths) - 1

    def _redirect(self, state: int, token_id: int, old: int, new: int) -> None:
        """What led from a state and its links to `old` leads to `new`."""
        while state != _NONE and self._next[state].get(token_id) == old:
            self._next[state][token_id] = new
            state = self._links[state]

    def _follow(self, state: int, token_id: int, longest: int) -> int:
        """The state of the ending of at most `longest` tokens, from the one before this token."""
        after = self._next[state][token_id]
        link = self._links[after]
        return link if self._lengths[link] >= longest else after

    def _note_places(self, state: int) -> tuple[int, ...]:
        """The contexts of a state and of its links come here; where they came before."""
        before = []
        while state != _ROOT:
            before.append(self._places[state])
            self._places[state] = self.size
            state = self._links[state]
        return tuple(before)
