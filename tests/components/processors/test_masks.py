"""Biases and masks of certain tokens: by hand, against transformers, and in whole runs."""

import ast
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import generation

import genkit
from genkit import Kit
from genkit.components.processors import (
    AllowedTokens,
    BadWords,
    BeginSuppressTokens,
    PrefixAllowedTokens,
    SequenceBias,
    SuppressTokens,
    TokenBias,
)
from genkit.components.samplers import Categorical, Greedy
from genkit.components.stopping import Eos, MaxNewTokens
from genkit.errors import EmptyRowError, InputError, OptionError, PartError, UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ByteTokenizer, ScriptedModel, check_logits_processor, process
from vectors import apply

INF = math.inf
FLAT = [0.0] * 4


def last_or_three(row, token_ids) -> list[int]:
    return [int(token_ids[-1]), 3]


def kept(part, prompt=(0,), generated=(), **options) -> list[int]:
    """The ids that a part leaves of a flat row."""
    out = process(part, FLAT, prompt=prompt, generated=generated, **options)
    return [i for i, logit in enumerate(out) if logit > -INF]


# Biases.


def test_a_bias_is_added_to_its_token() -> None:
    part = TokenBias(biases={0: 0.5, 2: -3})
    assert process(part, [1.0, 2.0, 3.0, -INF]) == [1.5, 2.0, 0.0, -INF]


@pytest.mark.parametrize("spelling", ["-inf", "-Infinity", -INF, None])
def test_minus_infinity_forbids_however_it_is_written(spelling) -> None:
    part = TokenBias(biases={1: spelling})
    assert part.biases == {1: "-inf"}
    assert process(part, [1.0, 2.0]) == [1.0, -INF]


def test_no_bias_brings_a_forbidden_token_back() -> None:
    assert process(TokenBias(biases={0: 1e6}), [-INF, 2.0]) == [-INF, 2.0]


def test_a_bias_keeps_the_precision_of_the_logits() -> None:
    logits = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    out = apply([TokenBias(biases={0: 0.1})], logits, prompts=[[0]], generated=[[]])
    assert out.dtype == torch.float64 and out.tolist() == [[1.1, 2.0]]


def test_ids_may_be_written_as_text() -> None:
    assert TokenBias(biases={"5": 1}).biases == {5: 1.0}


RECIPE = """\
version: 1
backend: {type: pytorch, model: none}
processors:
  - type: token_bias
    biases: {5: -inf, 6: -.inf, 7: null, 8: 1.5, "9": -2}
  - type: sequence_bias
    sequences:
      - {token_ids: [1, 2], bias: -inf}
      - {token_ids: [3], bias: 2}
  - type: bad_words
    token_ids: [[1], [2, 3]]
    strings: damn
    scope: output
  - {type: prefix_allowed_tokens, function: "os.path:join"}
"""


def test_what_people_write_in_a_recipe(tmp_path: Path) -> None:
    """And it comes back from JSON, which has no infinity, as what it was."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    kit = Kit(entry_points=False)
    recipe = kit.recipe(tmp_path / "recipe.yaml")
    biases = recipe.processors[0].biases
    assert biases == {5: "-inf", 6: "-inf", 7: "-inf", 8: 1.5, 9: -2.0}
    assert recipe.processors[1].sequences[0].bias == "-inf"
    assert recipe.processors[2].strings == ("damn",)
    assert kit.recipe(json.loads(json.dumps(recipe.to_dict(), allow_nan=False))) == recipe


def sequences(*pairs) -> SequenceBias:
    return SequenceBias(sequences=[{"token_ids": ids, "bias": bias} for ids, bias in pairs])


def test_a_sequence_of_one_always_matches_and_a_longer_one_where_the_row_ends_with_it() -> None:
    part = sequences(([0], 1), ([1, 2], 2), ([3, 1, 2], 4))
    assert process(part, FLAT, prompt=[0]) == [1, 0, 0, 0]
    assert process(part, FLAT, prompt=[1]) == [1, 0, 2, 0]
    assert process(part, FLAT, prompt=[3], generated=[1]) == [1, 0, 6, 0]
    assert process(part, FLAT, prompt=[3, 1, 2]) == [1, 0, 0, 0]


def test_padding_is_no_token_of_a_sequence() -> None:
    """Padding is id 0 in the rectangle."""
    part = sequences(([0, 1], 1), ([0, 2, 3], 2))
    out = apply([part], torch.zeros(3, 4), prompts=[[2], [0, 2], [3, 0, 2]], generated=[[]] * 3)
    assert out.tolist() == [[0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 2]]
    out = apply([part], torch.zeros(2, 4), prompts=[[], [3, 3]], generated=[[]] * 2)
    assert out.tolist() == [[0, 0, 0, 0]] * 2


def test_biases_of_equal_ends_sum_and_minus_infinity_wins() -> None:
    part = sequences(([3], 1e6), ([2, 3], 1), ([1, 2, 3], "-inf"))
    assert process(part, FLAT, prompt=[2]) == [0, 0, 0, 1e6 + 1]
    assert process(part, FLAT, prompt=[1, 2]) == [0, 0, 0, -INF]


def test_the_same_sequence_twice_is_refused() -> None:
    with pytest.raises(OptionError, match=r"sequence \[1, 2\] is given twice"):
        sequences(([1, 2], 1), ([2], 1), ([1, 2], 3))


# Words.


def test_the_last_token_of_a_word_is_forbidden() -> None:
    part = BadWords(token_ids=[[0], [1, 2], [3, 1, 3]])
    assert kept(part, prompt=[0]) == [1, 2, 3]
    assert kept(part, prompt=[1]) == [1, 3]
    assert kept(part, prompt=[3], generated=[1]) == [1]


def test_a_word_may_begin_in_the_prompt_unless_the_scope_is_the_output() -> None:
    words = [[1, 2], [3, 1, 2]]
    assert kept(BadWords(token_ids=words), prompt=[1]) == [0, 1, 3]
    output = BadWords(token_ids=words, scope="output")
    assert kept(output, prompt=[1]) == [0, 1, 2, 3]
    assert kept(output, prompt=[0], generated=[1]) == [0, 1, 3]
    long = BadWords(token_ids=[[3, 1, 2]], scope="output")
    assert kept(long, prompt=[3], generated=[1]) == [0, 1, 2, 3]


class Words:
    """A tokenizer that knows the words of a sentence with and without the space before them."""

    pieces = ("no", " no", "way", " way", "!")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        ids = []
        while text:
            piece = max((p for p in self.pieces if text.startswith(p)), key=len)
            ids.append(self.pieces.index(piece))
            text = text.removeprefix(piece)
        return ids


@pytest.mark.parametrize("string", ["no way", "  no way"])
def test_a_string_is_banned_with_and_without_a_space_before_it(string: str) -> None:
    part = BadWords(strings=[string])
    logits = [0.0] * 5
    for prompt, banned in ([0], 3), ([1], 3), ([2], None):
        out = process(part, logits, prompt=prompt, tokenizer=Words())
        assert [i for i, x in enumerate(out) if x == -INF] == ([] if banned is None else [banned])


def test_a_string_needs_a_tokenizer() -> None:
    with pytest.raises(UnsupportedError, match="'no'.*has no tokenizer"):
        process(BadWords(strings="no"), FLAT)


def ends_with_token_zero(part) -> list[int]:
    """What a model generates that wants its end token, 0, above all, and then 3."""
    model = ScriptedModel([[3.0, 0.0, 1.0, 2.0]], eos_token_ids=[0])
    pipeline = Pipeline(
        model, processors=[part], sampler=Greedy(), stop_criteria=[Eos(), MaxNewTokens(limit=6)]
    )
    [result] = pipeline.generate([[1]])
    return [*result.token_ids, result.finish_reason]


def test_a_banned_end_token_is_banned() -> None:
    """BAD-04."""
    assert ends_with_token_zero(BadWords(token_ids=[[0]])) == [3] * 6 + ["length"]


def test_end_tokens_are_spared_only_on_request_and_only_as_words_of_their_own() -> None:
    assert ends_with_token_zero(BadWords(token_ids=[[0]], spare_end_tokens=True)) == [0, "stop"]
    part = BadWords(token_ids=[[0], [3, 0]], spare_end_tokens=True)
    assert kept(part, prompt=[3], eos=[0]) == [1, 2, 3]


# Masks.


def test_suppressed_tokens_are_never_allowed() -> None:
    part = SuppressTokens(token_ids=[2, 0, 2])
    assert kept(part) == kept(part, generated=[1, 3]) == [1, 3]


def test_tokens_are_suppressed_at_the_beginning_of_an_answer_alone() -> None:
    part = BeginSuppressTokens(token_ids=[1])
    assert kept(part, prompt=[0, 0]) == [0, 2, 3]
    assert kept(part, prompt=[0, 0], generated=[2]) == [0, 1, 2, 3]
    later = BeginSuppressTokens(token_ids=[1], begin_index=1, num_tokens=2)
    counts = [len(kept(later, generated=[2] * n)) for n in range(5)]
    assert counts == [4, 3, 3, 4, 4]


def test_all_tokens_but_the_allowed_ones_are_forbidden() -> None:
    part = AllowedTokens(token_ids=[3, 1])
    assert process(part, [1.0, 2.0, 3.0, -INF]) == [-INF, 2.0, -INF, -INF]


def test_a_mask_that_leaves_nothing_ends_the_run_by_its_name() -> None:
    model = ScriptedModel([[0.0, -INF, 1.0]])
    pipeline = Pipeline(model, processors=[AllowedTokens(token_ids=[1])], sampler=Categorical())
    with pytest.raises(EmptyRowError, match=r"processors.0 \(allowed_tokens\)"):
        pipeline.generate([[0]], max_new_tokens=2)


# What a function allows.


def test_the_function_sees_the_row_without_padding_and_its_index() -> None:
    seen = []

    def function(row, token_ids) -> list[int]:
        seen.append((row, token_ids.tolist()))
        return [row]

    model = ScriptedModel([FLAT])
    pipeline = Pipeline(model, processors=[PrefixAllowedTokens(function=function)])
    results = pipeline.generate([[3, 3, 3], [2]], max_new_tokens=2)
    assert [list(result.token_ids) for result in results] == [[0, 0], [1, 1]]
    assert seen == [(0, [3, 3, 3]), (1, [2]), (0, [3, 3, 3, 0]), (1, [2, 1])]


def test_the_index_is_that_of_the_batch_after_rows_have_left() -> None:
    """Row 0 ends at once; row 1 stays what it was."""
    part = PrefixAllowedTokens(function=lambda row, token_ids: [row, 2])
    model = ScriptedModel([[5.0, 1.0, 0.0]], eos_token_ids=[0])
    results = Pipeline(model, processors=[part]).generate([[2], [2]], max_new_tokens=3)
    assert [list(result.token_ids) for result in results] == [[0], [1, 1, 1]]


@pytest.mark.parametrize(
    "answer", [[2, 0, 2], (0, 2), {0, 2}, torch.tensor([0, 2]), torch.tensor([2, 0]).int()]
)
def test_the_function_may_answer_in_any_form(answer) -> None:
    assert kept(PrefixAllowedTokens(function=lambda row, token_ids: answer)) == [0, 2]


@pytest.mark.parametrize("answer", [[], (), torch.tensor([])])
def test_a_function_that_allows_nothing_ends_the_run_with_row_and_step(answer) -> None:
    def function(row, token_ids):
        return answer if row == 1 and len(token_ids) == 3 else [2]

    pipeline = Pipeline(ScriptedModel([FLAT]), processors=[PrefixAllowedTokens(function=function)])
    with pytest.raises(EmptyRowError, match="row 1, step 1: .*allows no id"):
        pipeline.generate([[0], [0, 0]], max_new_tokens=3)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 4], "4 is no token id"),
        ([-1], "-1 is no token id"),
        ([0.5], "whole numbers"),
        (torch.tensor([True, False, True, False]), "gave a mask"),
        ([True, False, True, False], "gave a mask"),
    ],
)
def test_a_function_that_gives_no_ids_is_named(answer, message: str) -> None:
    part = PrefixAllowedTokens(function=lambda row, token_ids: answer)
    pipeline = Pipeline(ScriptedModel([FLAT]), processors=[part])
    with pytest.raises(PartError, match=rf"step 0: processors.0 \(prefix_allowed.*{message}"):
        pipeline.generate([[0]], max_new_tokens=1)


def test_where_all_that_is_allowed_is_forbidden_already() -> None:
    forbidden = [1.0, -INF, 2.0, -INF]
    part = PrefixAllowedTokens(function=lambda row, token_ids: [1, 3])
    assert process(part, forbidden) == [-INF] * 4
    part = PrefixAllowedTokens(function=lambda row, token_ids: [1, 3], if_none_left="allow")
    assert process(part, forbidden) == [-INF, 0.0, -INF, 0.0]
    part = PrefixAllowedTokens(function=lambda row, token_ids: [1, 2], if_none_left="allow")
    assert process(part, forbidden) == [-INF, -INF, 2.0, -INF]


def test_a_function_is_imported_when_a_run_begins(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "rules_of_mine.py").write_text(
        "five = 5\n\nclass Rules:\n    @staticmethod\n    def even(row, ids): return [0, 2]\n"
    )
    part = PrefixAllowedTokens(function="rules_of_mine:Rules.even")
    with pytest.raises(OptionError, match="function: 'rules_of_mine:Rules.even' cannot be import"):
        kept(part)
    monkeypatch.syspath_prepend(tmp_path)
    assert kept(part) == [0, 2]
    with pytest.raises(OptionError, match="cannot be imported: .*odd"):
        kept(PrefixAllowedTokens(function="rules_of_mine:odd"))
    with pytest.raises(OptionError, match="'rules_of_mine:five' is no function"):
        kept(PrefixAllowedTokens(function="rules_of_mine:five"))


# Options.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenBias(biases={1: True}), "biases.1: a number is expected, found True"),
        (lambda: TokenBias(biases={1: "much"}), "biases.1: a bias is a number"),
        (lambda: TokenBias(biases={1: -1e9}), "biases.1: .*to forbid write -inf, found -10000"),
        (lambda: TokenBias(biases={1: INF}), "biases.1: a bias lies between"),
        (lambda: TokenBias(biases={1: math.nan}), "biases.1: a bias lies between"),
        (lambda: TokenBias(biases={1: 10**400}), "biases.1: a bias is a number"),
        (lambda: TokenBias(biases=[1, 2]), "biases: input should be a valid dictionary"),
        (lambda: TokenBias(), "biases: this option is required"),
        (lambda: sequences(([], 1)), "sequences.0.token_ids: at least 1 is needed"),
        (lambda: SequenceBias(sequences=[{"token_ids": [1]}]), "sequences.0.bias: .*required"),
        (
            lambda: SequenceBias(sequences=[{"tokens": [1], "bias": 1}]),
            "sequences.0: .* no option 'tokens', did you mean 'token_ids'.*: bias, token_ids",
        ),
        (lambda: SequenceBias(sequences=[[1]]), "sequences.0: input should be a valid dict"),
        (lambda: BadWords(token_ids=[[1], []]), "token_ids: a word has at least one token"),
        (lambda: BadWords(strings=["a", " "]), "strings: a word has at least one letter"),
        (lambda: BadWords(token_ids=[1]), "token_ids.0: "),
        (lambda: BadWords(token_ids=[[1]], scope="prompt"), "scope: .*found 'prompt'"),
        (lambda: BeginSuppressTokens(token_ids=[1], begin_index=-1), "begin_index: .*found -1"),
        (lambda: BeginSuppressTokens(token_ids=[1], num_tokens=0), "num_tokens: .*found 0"),
        (lambda: AllowedTokens(token_ids=[]), "token_ids: at least 1 is needed"),
        (
            lambda: PrefixAllowedTokens(function="math.sqrt"),
            "function: a function .*found 'math.sqrt'",
        ),
        (lambda: PrefixAllowedTokens(function=5), "function: a function is expected"),
    ],
)
def test_wrong_options_are_named(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    "part",
    [
        TokenBias(biases={4: 1}),
        TokenBias(biases={-1: 1}),
        sequences(([1], 1), ([4, 1], 1)),
        BadWords(token_ids=[[1, 4]]),
        SuppressTokens(token_ids=[1, 4]),
        BeginSuppressTokens(token_ids=[4]),
        AllowedTokens(token_ids=[4, 1]),
    ],
    ids=lambda part: part.type,
)
def test_an_id_that_the_model_does_not_have_is_refused(part) -> None:
    with pytest.raises(InputError, match=f"{part.type}: (4|-1) is no token id of this model"):
        process(part, FLAT)


@pytest.mark.parametrize(
    "part",
    [
        TokenBias(biases={}),
        SequenceBias(sequences=[]),
        BadWords(),
        SuppressTokens(token_ids=[]),
        BeginSuppressTokens(token_ids=[]),
    ],
    ids=lambda part: part.type,
)
def test_what_lists_nothing_does_nothing(part) -> None:
    assert part.bind(None if part.type != "bad_words" else _RunWithout()) is None


class _RunWithout:
    tokenizer = None
    eos_token_ids = frozenset()


# Laws.


@pytest.mark.parametrize(
    "part",
    [
        TokenBias(biases={1: 2.5, 3: -4, 5: "-inf"}),
        sequences(([1], 2), ([2, 1], -0.5), ([3, 2, 1], "-inf")),
        BadWords(token_ids=[[1], [2, 3], [2, 3, 4]]),
        BadWords(token_ids=[[2, 3], [1]], scope="output", spare_end_tokens=True),
        SuppressTokens(token_ids=[3, 1]),
        BeginSuppressTokens(token_ids=[3, 1], begin_index=1, num_tokens=2),
        AllowedTokens(token_ids=[1, 3]),
        PrefixAllowedTokens(function=last_or_three),
        PrefixAllowedTokens(function=last_or_three, if_none_left="allow"),
    ],
    ids=lambda part: part.type,
)
def test_laws(part) -> None:
    check_logits_processor(part, max_examples=5)


def test_laws_of_strings() -> None:
    part = BadWords(strings=["ab"])
    check_logits_processor(part, tokenizer=ByteTokenizer(), max_examples=5)


@pytest.mark.parametrize(
    "part", [TokenBias(biases={0: 1}), SuppressTokens(token_ids=[0]), AllowedTokens(token_ids=[0])]
)
def test_laws_in_a_vocabulary_of_one(part) -> None:
    check_logits_processor(part, vocab_size=1, max_examples=5)


# Against transformers' own classes.

fewer = settings(max_examples=settings.default.max_examples // 3)

VOCAB = 6
_values = st.one_of(
    st.floats(-20, 20, width=32), st.integers(-3, 3).map(float), st.just(-INF), st.just(1e4)
)
_rows = st.lists(_values, min_size=VOCAB, max_size=VOCAB).filter(lambda row: max(row) > -INF)
_ids = st.integers(0, VOCAB - 1)
_few = st.integers(0, 2)  # so that sequences are found in the text
_biases = st.one_of(st.just(-INF), st.floats(-5, 5, width=32))


@st.composite
def _batches(draw) -> tuple[torch.Tensor, list[list[int]]]:
    """Logits and as many texts, all equally long, since transformers takes padding for text."""
    logits = draw(st.lists(_rows, min_size=1, max_size=3))
    length = draw(st.integers(1, 4))
    text = st.lists(_few, min_size=length, max_size=length)
    return torch.tensor(logits), [draw(text) for _ in logits]


def both(part, theirs, batch, **facts) -> tuple[torch.Tensor, torch.Tensor]:
    logits, texts = batch
    ours = apply([part], logits, prompts=texts, generated=[[]] * len(texts), **facts)
    return ours, theirs(torch.tensor(texts), logits)


@fewer
@given(_batches(), st.dictionaries(st.tuples(_few, _few) | st.tuples(_few), _biases, min_size=1))
def test_sequence_bias_as_transformers(batch, biases) -> None:
    theirs = generation.SequenceBiasLogitsProcessor(
        [[list(ids), float(bias)] for ids, bias in biases.items()]
    )
    ours, expected = both(sequences(*biases.items()), theirs, batch)
    torch.testing.assert_close(ours, expected, rtol=3e-6, atol=3e-6)


@fewer
@given(
    _batches(),
    st.lists(st.lists(_few, min_size=1, max_size=3), min_size=1, max_size=5),
    st.lists(_ids, min_size=1, max_size=2),
)
def test_bad_words_as_transformers(batch, words, ends) -> None:
    part = BadWords(token_ids=words, spare_end_tokens=True)
    if all(len(word) == 1 and word[0] in ends for word in words):
        return  # transformers refuses a list of which nothing is left
    theirs = generation.NoBadWordsLogitsProcessor(words, eos_token_id=ends)
    assert torch.equal(*both(part, theirs, batch, eos=ends))


@fewer
@given(_batches(), st.lists(_ids, min_size=1, max_size=4))
def test_suppress_tokens_as_transformers(batch, token_ids) -> None:
    theirs = generation.SuppressTokensLogitsProcessor(token_ids)
    assert torch.equal(*both(SuppressTokens(token_ids=token_ids), theirs, batch))


@fewer
@given(_batches(), st.lists(_ids, min_size=1, max_size=4), st.integers(0, 5), st.integers(0, 3))
def test_begin_suppress_tokens_as_transformers(batch, token_ids, begin, prompt_length) -> None:
    """Their index counts the prompt."""
    logits, texts = batch
    theirs = generation.SuppressTokensAtBeginLogitsProcessor(token_ids, begin + prompt_length)
    ours = apply(
        [BeginSuppressTokens(token_ids=token_ids, begin_index=begin)],
        logits,
        prompts=[text[:prompt_length] for text in texts],
        generated=[text[prompt_length:] for text in texts],
    )
    if len(texts[0]) >= prompt_length:
        assert torch.equal(ours, theirs(torch.tensor(texts), logits))


@fewer
@given(_batches(), st.lists(st.sets(_ids, min_size=1), min_size=3, max_size=3))
def test_prefix_allowed_tokens_as_transformers(batch, allowed) -> None:
    def function(row, token_ids) -> list[int]:
        return sorted({*allowed[row], int(token_ids[-1])})

    theirs = generation.PrefixConstrainedLogitsProcessor(function, num_beams=1)
    part = PrefixAllowedTokens(function=function, if_none_left="allow")
    assert torch.equal(*both(part, theirs, batch))


# Nothing is forbidden with a large negative number, whatever it is called.

PACKAGE = Path(genkit.__file__).parent
ON_PURPOSE = {
    "remove_invalid.py",  # it makes finite what is not
    "tiny_model.py",  # scores of attention get the least number of their type, in one selection
}


def finite_floors(source: str) -> list[int]:
    """The lines with a large negative number or a type's least one; bounds of options pass."""
    nodes = list(ast.walk(ast.parse(source)))
    bounds = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "ge"]

    def is_floor(node: ast.AST) -> bool:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return value >= 1e4 and node not in bounds
            case ast.Attribute(attr="min", value=ast.Call(func=function)):
                return "finfo" in ast.unparse(function)
        return False

    return [node.lineno for node in nodes if is_floor(node)]


def test_nothing_has_a_finite_floor() -> None:
    """NAN-08."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.name not in ON_PURPOSE]
    assert len(paths) > 100
    found = {path.name: finite_floors(path.read_text("utf-8")) for path in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source", ["x.masked_fill(m, -1e9)", "low = -10000", "x[m] = torch.finfo(x.dtype).min"]
)
def test_finite_floors_are_found(source: str) -> None:
    assert finite_floors(source) == [1]
