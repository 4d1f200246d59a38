"""How recipes read YAML."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genkit.errors import RecipeError
from genkit.recipes.yaml_reader import read_file, read_text, read_value


def value(text):
    return read_text(f"key: {text}", "recipe.yaml").data["key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7e-1", 0.7),
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("1.0e-4", 0.0001),
        (".5", 0.5),
        ("-2.", -2.0),
        ("+5", 5),
        ("-17", -17),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
    ],
)
def test_numbers_and_words_of_yaml_1_2(text, expected):
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**99), 10**99))
def test_a_number_as_python_writes_it_is_that_number(number):
    found = read_value(repr(number))
    assert found == number
    assert type(found) is type(number)


def test_not_a_number():
    assert math.isnan(value(".nan"))


NEARLY = (
    "yes no on off Yes NO y n 010 -007 1:30 1_000 0x10 0o17 0b1 1e-1x 2024-01-01 = << 1.2.3 e3 ."
)


@pytest.mark.parametrize("text", NEARLY.split())
def test_what_is_only_nearly_a_number_or_a_switch_stays_text(text):
    assert value(text) == text


@pytest.mark.parametrize("text", ["'0.7'", '"0.7"', "'yes'", "'null'", "''"])
def test_quoted_scalars_are_text(text):
    assert value(text) == text[1:-1]


def test_a_number_too_long_to_convert_stays_text():
    assert value("9" * 5000) == "9" * 5000


def test_double_quotes_have_escapes_and_single_ones_have_not():
    assert value(r'"a\nb"') == "a\nb"
    assert value(r"'a\nb'") == r"a\nb"
    assert value(r"a\nb") == r"a\nb"


def test_block_text_is_text():
    assert read_text("a: |\n  1\n  2\nb: >\n  3\n", "").data == {"a": "1\n2\n", "b": "3\n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: the key 'a' occurs twice, first in line 1"),
        ("a: {b: 1, 'b': 2}\n", "1:11: the key 'b' occurs twice"),
        ("a: !!python/object/apply:os.system [ls]\n", "1:4: tags are not used in recipes"),
        ("a: !!str 5\n", "tags are not used in recipes"),
        ("!x {a: 1}\n", "tags are not used in recipes, found !x"),
        ("a: &x [1]\nb: *x\n", "1:4: anchors and aliases"),
        ("a: *x\n", "1:4: anchors and aliases"),
        ("a: 1\n---\nb: 2\n", "2:1: this is not YAML: more than one document"),
        ("a: " + "[" * 40, "more than 32 levels of nesting"),
        ("a: " + "{a: " * 40, "more than 32 levels of nesting"),
        ("a: b: c\n", "1:5: this is not YAML: mapping values are not allowed here"),
        ("a: [1, 2\n", "this is not YAML: while parsing a flow sequence"),
        ("a: 'x\n", "this is not YAML: while scanning a quoted scalar"),
        ("\ta: 1\n", "1:1: this is not YAML"),
        ("a: \x00", "this is not YAML"),
        ("? [1]\n: 2\n", "1:3: a key must be text or a whole number"),
        ("true: 2\n", "a key must be text or a whole number"),
        ("~: 2\n", "a key must be text or a whole number"),
    ],
)
def test_what_recipes_do_not_use_is_refused_with_its_place(text, message):
    with pytest.raises(RecipeError) as caught:
        read_text(text, "recipe.yaml")
    assert str(caught.value).startswith("recipe.yaml:")
    assert message in str(caught.value)


def test_a_merge_key_is_an_ordinary_key():
    assert read_text("<<: {a: 1}", "").data == {"<<": {"a": 1}}


def test_each_value_knows_its_place():
    document = read_text("a:\n  - b: 1\n    c: 2\n", "r.yaml")
    assert document.place(("a", 0, "c")) == "r.yaml:3:5"
    assert document.place(("a", 0, "missing")) == "r.yaml:2:5"
    assert document.place(("nowhere",)) == "r.yaml:1:1"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(
        RecipeError, match=r"nowhere\.yaml: the recipe cannot be read: No such file"
    ):
        read_file(tmp_path / "nowhere.yaml")
    with pytest.raises(RecipeError, match="cannot be read"):
        read_file(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: \xe9\n")
    with pytest.raises(RecipeError, match="not UTF-8: byte 3"):
        read_file(path)


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("\ufeffversion: 1\n", encoding="utf-8")
    assert read_file(path).data == {"version": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5", 0.5),
        ("", None),
        ("{type: top_k, k: 5}", {"type": "top_k", "k": 5}),
        ("[1, yes]", [1, "yes"]),
        ("You are: brief # really", "You are: brief # really"),
        (r"C:\new", r"C:\new"),
        (r"'\n'", r"\n"),
        (r'"\n"', "\n"),
        ("!x", "!x"),
        ("*x", "*x"),
    ],
)
def test_a_value_on_the_command_line(text, expected):
    assert read_value(text) == expected
