"""A row's matcher can be copied and taken back, within the grammar and beyond it."""

import numpy as np
import pytest

from genkit.core.run import Run
from genkit.testing import ByteTokenizer
from genkit_structured.matchers import RowMatcher
from genkit_structured.structured import Structured

EOS = ByteTokenizer.eos_token_id
RUN = Run(
    prompts=((0,),),
    seeds=(0,),
    samples=(0,),
    limits=(99,),
    rows=(0,),
    vocab_size=260,
    eos_token_ids=frozenset({EOS}),
    tokenizer=ByteTokenizer(),
)


def after(token_ids: list[int]) -> RowMatcher:
    [row] = Structured(regex="a(b|c)*d?").row_matchers(RUN)
    for token_id in token_ids:
        row.push(token_id)
    return row


def allowed(row: RowMatcher) -> tuple[set[int], bool]:
    marks = np.zeros(260, np.bool_)
    row.allow(marks)
    return {*marks.nonzero()[0].tolist()}, row.has_ended


TEXTS = {
    "within": [*b"abcb"],
    "complete": [*b"abd"],
    "ended": [*b"abc", EOS, EOS],
    "complete and ended": [*b"abd", EOS],
    "off the grammar": [*b"abxyb"],
    "ended too early": [EOS, *b"ab"],
}


@pytest.mark.parametrize("token_ids", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_taken_back_has_never_been(token_ids: list[int]) -> None:
    for n in range(len(token_ids) + 1):
        row = after(token_ids)
        row.pop(n)
        assert allowed(row) == allowed(after(token_ids[: len(token_ids) - n])), n


@pytest.mark.parametrize("token_ids", TEXTS.values(), ids=TEXTS.keys())
def test_a_copy_goes_its_own_way(token_ids: list[int]) -> None:
    for n in range(len(token_ids)):
        row = after(token_ids[:n])
        copy = row.copy()
        for token_id in token_ids[n:]:
            copy.push(token_id)
        assert allowed(row) == allowed(after(token_ids[:n]))
        assert allowed(copy) == allowed(after(token_ids))
        copy.pop(len(token_ids))
        assert allowed(copy) == allowed(after([]))


def test_rows_differ_where_they_should() -> None:
    found = [allowed(after(token_ids)) for token_ids in TEXTS.values()]
    nothing: tuple[set[int], bool] = (set(), False)
    the_end = ({EOS}, True)
    assert found == [({*b"bcd", EOS}, False), the_end, the_end, the_end, nothing, nothing]
