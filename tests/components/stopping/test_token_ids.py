"""Tokens that end a row."""

import pytest

from genkit.components.stopping import Eos, StopTokenIds
from genkit.errors import InputError, OptionError
from saying import say


def test_several_eos_ids_and_its_report() -> None:
    result, _ = say(["a", "b", "c", "d"], Eos(), eos={2, 3})
    assert result.token_ids == [0, 1, 2]
    assert result.finish_reason == "stop"
    assert (result.stop.criterion, result.stop.matched, result.stop.position) == ("eos", 2, 2)


def test_the_end_token_gives_no_text_even_if_no_tokenizer_calls_it_special() -> None:
    assert say(["a", "b", "END"], Eos(), eos={2})[0].text == "ab"


def test_eos_of_the_recipe_replaces_the_models() -> None:
    assert say(["a", "b", "c"], Eos(token_ids=[1]), eos={0})[0].token_ids == [0, 1]


def test_no_eos_means_never() -> None:
    result, _ = say(["a", "b", "c"], Eos())
    assert result.finish_reason == "length" and result.token_ids == [0, 1, 2]


@pytest.mark.parametrize("bad", [-1, 4, 10**9])
@pytest.mark.parametrize("criterion", [Eos, StopTokenIds])
def test_ids_outside_the_vocabulary_are_refused_with_the_way_out(criterion, bad: int) -> None:
    with pytest.raises(InputError, match="leave the part out"):
        say(["a", "b", "c", "d"], criterion(token_ids=[bad]))


def test_stop_token_ids_keep_text_but_of_special_tokens() -> None:
    assert say(["a", "b", "c"], StopTokenIds(token_ids=[1]))[0].text == "ab"
    hidden, _ = say(["a", "<x>", "c"], StopTokenIds(token_ids=[1]), special=frozenset({1}))
    assert hidden.text == "a" and hidden.stop.criterion == "stop_token_ids"


@pytest.mark.parametrize("criterion", [Eos, StopTokenIds])
def test_an_empty_list_is_refused(criterion) -> None:
    with pytest.raises(OptionError):
        criterion(token_ids=[])
