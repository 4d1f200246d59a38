"""What a law raises."""

from __future__ import annotations

from typing import Any

from genkit.core.contracts import name_of


class LawBroken(AssertionError):
    """A part does not keep a law.

    Attributes:
        law: the name of the law, in words.
        part: how messages call the part.
        evidence: the first place where it shows: row, step, token, what was expected and found.
    """

    def __init__(self, law: str, part: Any, evidence: str) -> None:
        self.law = law
        self.part = part if isinstance(part, str) else name_of(part)
        self.evidence = evidence
        super().__init__(self.law, self.part, self.evidence)

    def __str__(self) -> str:
        return f"{self.part!r} breaks the law {self.law!r}: {self.evidence}"
