from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from genkit.inspect.score import score
from genkit.testing import TinyModel


def test_json_has_the_keys_of_the_interface(genkit: Any, tiny: Path) -> None:
    done = genkit("score", "-r", tiny, "abc", "--json")
    assert done.status == 0
    document = done.json
    assert set(document) == {"tokens", "logprob", "perplexity", "num_tokens"}
    first, *others = document["tokens"]
    assert first == {"token_id": ord("a"), "text": "a", "logprob": None}
    logprobs = [token["logprob"] for token in others]
    assert document["num_tokens"] == 3
    assert document["logprob"] == pytest.approx(sum(logprobs))
    assert document["perplexity"] == pytest.approx(math.exp(-sum(logprobs) / 2))


CHAIN = """
processors:
  - {type: suppress_tokens, token_ids: [98, 100]}
  - {type: temperature, temperature: 0.3}
  - {type: top_k, k: 1}
"""


@pytest.mark.parametrize("sampler", ["greedy", "categorical"])
def test_logprobs_are_those_of_the_model_whatever_the_recipe_samples_with(
    genkit: Any, tiny: Path, sampler: str
) -> None:
    """LOGP-06: null for the first of four tokens, and raw ones for the others.

    The recipe forbids the second and the fourth, and leaves no choice but one.
    """
    tiny.write_text(f"version: 1\nbackend: {{type: tiny}}\nsampler: {{type: {sampler}}}\n{CHAIN}")
    first, *others = genkit("score", "-r", tiny, "abcd", "--json").json["tokens"]
    assert first["logprob"] is None
    plain = score(TinyModel(), "abcd").tokens[1:]
    assert [token["logprob"] for token in others] == [token.logprob for token in plain]


def test_the_text_is_plain_whatever_the_context(genkit: Any, tiny: Path) -> None:
    chat = genkit("score", "-r", tiny, "abc", "--json").out
    text = genkit("score", "-r", tiny, "abc", "--json", "--set", "context={type: text}").out
    assert chat == text


def test_the_begin_token_comes_from_the_tokenizer(genkit: Any, tiny: Path) -> None:
    done = genkit("score", "-r", tiny, "abc", "--json", "--set", "backend.add_bos=true")
    assert [t["text"] for t in done.json["tokens"]] == ["<bos>", "a", "b", "c"]


def test_from_standard_input(genkit: Any, tiny: Path) -> None:
    piped = genkit("score", "-r", tiny, "--json", stdin="abc\n").out
    assert piped == genkit("score", "-r", tiny, "--json", "abc").out


def test_as_text(genkit: Any, tiny: Path) -> None:
    done = genkit("score", "-r", tiny, "a\nb")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["a", "97", "-"] in lines
    assert [r"\n", "10"] in [line[:2] for line in lines]
    assert ["tokens", "3"] in lines


def test_one_token(genkit: Any, tiny: Path) -> None:
    document = genkit("score", "-r", tiny, "a", "--json").json
    assert (document["logprob"], document["perplexity"]) == (0, None)
    assert genkit("score", "-r", tiny, "a").status == 0


@pytest.mark.parametrize(
    ("text", "message"), [("", "the text is empty"), ("x" * 257, "context holds 256")]
)
def test_wrong_texts(genkit: Any, tiny: Path, text: str, message: str) -> None:
    done = genkit("score", "-r", tiny, text)
    assert (done.status, done.out) == (1, "")
    assert message in done.err


def test_real_process(process: Any, tiny: Path, plugin: Path) -> None:
    done = process("score", "--plugin", plugin, "-r", tiny, "--json", stdin="ab\n")
    assert done.status == 0
    assert done.json["num_tokens"] == 2
