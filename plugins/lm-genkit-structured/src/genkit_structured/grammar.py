"""The options that describe the form of an answer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, grammar_from
from pydantic import Field, field_validator

from genkit.components.base import Component
from genkit.core.run import Run
from genkit.errors import OptionError, OptionProblem
from genkit_structured.matchers import RowMatcher
from genkit_structured.vocabulary import Vocabulary

FORMS = ("json_schema", "regex", "choices", "lark")
"""The options of which one is given."""


class Grammar(Component):
    """What an answer looks like: exactly one of four options says it."""

    json_schema: dict[str, Any] | str | None = Field(
        None, description="a JSON schema, or the path of a file that has one"
    )
    regex: str | None = Field(
        None, description="a regular expression that the whole answer matches, in Rust's syntax"
    )
    choices: tuple[str, ...] | None = Field(
        None, min_length=1, description="texts of which the answer is one"
    )
    lark: str | None = Field(
        None, description="a grammar in the manner of Lark (`start: ...`), or the path of one"
    )
    blanks: int = Field(
        1,
        ge=0,
        description="with json_schema: the most blanks or line breaks in a row; 0: compact JSON",
    )

    def __init__(self, /, *unnamed: Any, **options: Any) -> None:
        """Check the options, and that llguidance takes the grammar.

        Raises:
            OptionError: an option is wrong, a file cannot be read, or the grammar is refused.
        """
        super().__init__(*unnamed, **options)
        try:
            text = self.text()
        except OptionError:
            raise
        except (ValueError, RecursionError) as error:  # what JSON and UTF-8 cannot say
            raise self._refused(f"it cannot be written down: {error}") from None
        is_wrong, messages = LLMatcher.validate_grammar_with_warnings(text)
        if is_wrong:
            raise self._refused(_words(messages[0]))

    @field_validator("json_schema", mode="before")
    @classmethod
    def _mapping_or_path(cls, value: Any) -> Any:
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if value is None or isinstance(value, dict | str):
            return value
        raise ValueError("a mapping or the path of a file is expected")

    def text(self) -> str:
        """The grammar in llguidance's own notation; files are read anew.

        Raises:
            OptionError: no option or more than one says what it is, or a file cannot be read.
        """
        form = self._form()
        if form == "json_schema":
            return LLMatcher.grammar_from_json_schema(self._schema(), overrides=self._layout())
        if self.regex is not None:
            return grammar_from("regex", self.regex)
        if self.choices is not None:
            return grammar_from("choice", json.dumps(self.choices))
        # Every grammar has a colon after the name of its first rule.
        lark = str(self.lark)
        return grammar_from("lark", lark if ":" in lark else self._read(lark))

    def row_matchers(self, run: Run) -> list[RowMatcher]:
        """A matcher at the beginning of the answer for each row.

        Raises:
            UnsupportedError: the model has no tokenizer, or one that llguidance cannot use.
            OptionError: the grammar is refused, no text matches it, or only the empty one, and the
                model has no end token.
        """
        vocabulary = Vocabulary.of(run, self.type)
        matcher = LLMatcher(vocabulary.tokenizer, self.text(), log_level=0)
        if matcher.is_error():
            raise self._refused(_words(matcher.get_error()))
        allowed = np.zeros(run.vocab_size, np.bool_)
        try:
            RowMatcher(matcher.deep_copy(), vocabulary).allow(allowed)
        except RuntimeError:
            raise self._refused("no text of this vocabulary matches it") from None
        if not allowed.any():
            raise self._refused(
                "only the empty text matches it, and this model has no end token to answer it with"
            )
        return [RowMatcher(matcher.deep_copy(), vocabulary) for _ in run.prompts]

    def _form(self) -> str:
        """Which option says what the answer looks like."""
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            message = f"exactly one of {', '.join(FORMS)} is needed, found {found}"
            raise self._wrong((given or FORMS)[-1], message)
        if "blanks" in self.model_fields_set and given != ["json_schema"]:
            raise self._wrong("blanks", f"this goes with json_schema, and {given[0]} is given")
        return given[0]

    def _schema(self) -> dict[str, Any]:
        if isinstance(self.json_schema, dict):
            json.dumps(self.json_schema, allow_nan=False)  # llguidance dies of one without an end
            return self.json_schema
        path = str(self.json_schema)
        try:
            schema = json.loads(self._read(path))
        except json.JSONDecodeError as error:
            raise self._refused(f"{path!r} is no JSON file: {error}") from None
        if not isinstance(schema, dict):
            raise self._refused(f"{path!r} holds no mapping, and a schema is one")
        return schema

    def _layout(self) -> Any:
        """Where blanks may stand, for llguidance; what a schema says itself comes second."""
        if not self.blanks:
            return {"whitespace_flexible": False, "whitespace_pattern": None}
        pattern = rf"[\x20\x0A\x0D\x09]{{1,{self.blanks}}}"
        return {"whitespace_flexible": True, "whitespace_pattern": pattern}

    def _read(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise self._refused(f"there is no readable file {path!r}: {error}") from None

    def _refused(self, message: str) -> OptionError:
        return self._wrong(self._form(), message)

    def _wrong(self, option: str, message: str) -> OptionError:
        return OptionError(self.type, [OptionProblem((option,), message, getattr(self, option))])


def _words(refusal: str) -> str:
    """What llguidance says, without its stack and the advice to set an option that is its own."""
    said, option, _ = refusal.partition("<backtrace>")[0].partition(" Enable 'coerce_one_of'")
    advice = " Say anyOf, if it is right to take what fits more than one." if option else ""
    return f"llguidance refuses it: {said.rstrip()}{advice}"
