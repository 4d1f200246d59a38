"""What becomes of the settings of other engines; their whole chains are in the golden vectors."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import zoo
from genkit.errors import GenkitError, InputError, UnknownNameError
from genkit.kit import Kit
from genkit.plugins.manager import PluginManager
from genkit.recipes.importers import ENGINES, Imported, import_recipe
from genkit.recipes.order import order_warnings

REGISTRY = PluginManager(entry_points=False).registry


def imported(engine: str, *words: Any, model: str | None = None, **settings: Any) -> Imported:
    given: Any = words or settings
    return import_recipe(engine, given, model=model, registry=REGISTRY)


def parts(found: Imported) -> list[dict[str, Any]]:
    """The processors with the options that somebody has said."""
    document = found.recipe.document.data
    return list(document["processors"])


def types(found: Imported) -> list[str]:
    return [part["type"] for part in parts(found)]


def stops(found: Imported) -> list[dict[str, Any]]:
    return list(found.recipe.document.data["stop_criteria"])


def sources(found: Imported) -> dict[str, str]:
    return {".".join(map(str, s.path)): s.source for s in found.recipe.settings()}


MODEL_FILE = ("generation_config", "sampling_defaults")
"""Noted whenever a model's own settings could count."""


def unsaid(found: Imported) -> dict[str, str]:
    return {each.setting: each.reason for each in found.unsaid if each.setting not in MODEL_FILE}


# --- what holds for all ------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_given_gives_the_engines_defaults(engine: str) -> None:
    found = imported(engine)
    assert unsaid(found) == {}
    said = {text for path, text in sources(found).items() if path.startswith("processors.")}
    assert said <= {f"default of {engine}", f"as in {engine}", "default"}


LAST = "as in llama.cpp and mlx-lm"
NO_LIMIT = "have no limit"
WARNINGS = {
    "llama.cpp": [LAST, LAST, NO_LIMIT],  # its temperature is last, and answers are unbounded
    "llama-cpp-python": [LAST, LAST],
    "onnxruntime-genai": [NO_LIMIT],
    "openai": [NO_LIMIT],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_defaults_are_warned_of_where_they_are_suspicious(engine: str) -> None:
    found = order_warnings(imported(engine).recipe)
    expected = WARNINGS.get(engine, [])
    assert len(found) == len(expected)
    assert all(words in warning for words, warning in zip(expected, found, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_misspelt_setting_gets_the_nearest_name(engine: str) -> None:
    name = "temperatur" if engine != "hf" else "max_new_token"
    [(setting, reason)] = unsaid(imported(engine, **{name: 5})).items()
    assert setting == name
    assert f"{engine} has no setting of this name, did you mean" in reason


def test_an_unknown_engine() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'vllm'"):
        imported("vlm")


def test_a_recipe_of_an_import_is_a_recipe() -> None:
    found = imported("hf", do_sample=True, top_k=5, eos_token_id=[2, 3])
    kit = Kit(entry_points=False)
    assert kit.recipe(found.recipe.to_dict()) == found.recipe


# --- files, pairs, flags, and who says a value -------------------------------------------


def test_later_words_win_and_each_value_says_where_it_comes_from(tmp_path: Any) -> None:
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.9}))
    found = imported("hf", file, "top_p=0.5")
    assert parts(found) == [
        {"type": "temperature", "temperature": 0.6},
        {"type": "top_k", "k": 50, "ties": "keep"},
        {"type": "top_p", "p": 0.5},
    ]
    said = sources(found)
    assert said["processors.0.temperature"] == "generation_config.json: temperature"
    assert said["processors.1.k"] == "default of hf"
    assert said["processors.1.ties"] == "as in hf"
    assert said["processors.2.p"] == "top_p=0.5"
    assert said["processors.2.ties"] == "default"
    assert said["sampler.type"] == "generation_config.json: do_sample"


@pytest.mark.parametrize(
    ("word", "value"),
    [("true", True), ("True", True), ("none", None), ("5", 5), ("0.5", 0.5), ("a b", "a b")],
)
def test_values_of_pairs(word: str, value: Any) -> None:
    found = imported("hf", f"unknown={word}")
    assert [each.value for each in found.unsaid] == ([] if value is None else [value])


def test_settings_inside_others_count() -> None:
    found = imported("openai", extra_body={"top_p": 0.5})
    assert parts(found) == [{"type": "top_p", "p": 0.5}]
    found = imported("sglang", 'sampling_params={"top_k": 5}')
    assert parts(found) == [{"type": "top_k", "k": 5, "ties": "by_id"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[1]", "a JSON object is expected"), (None, "No such file")],
)
def test_files_that_cannot_be_read(text: str | None, message: str, tmp_path: Any) -> None:
    file = tmp_path / "settings.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=message):
        imported("hf", file)


def test_what_a_later_word_says_otherwise_is_listed(tmp_path: Any) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"temperature": 0.5, "top_p": 0.9}')
    found = imported("openai", file, "temperature=1.5", "temperature=0.8", "top_p=0.9")
    assert [each.value for each in found.unsaid] == [0.5, 1.5]
    assert found.unsaid[1].reason == "temperature=0.8 says it too, and counts"
    assert parts(found)[0] == {"type": "temperature", "temperature": 0.8}
    flags = imported("llama.cpp", "--temp 1 --temp 0.5 -r a")
    assert unsaid(flags) == {"temperature": "--temp 0.5 says it too, and counts"}
    lists = imported("llama.cpp", 'stop=["a"]', "-r", "b")
    assert stops(lists)[1]["strings"] == ["b"]
    assert unsaid(lists) == {"stop": "-r b says it too, and counts"}


@pytest.mark.parametrize("order", [1, -1])
def test_what_stands_inside_counts_before_what_stands_beside_it(order: int) -> None:
    request = {"temperature": 1.5, "extra_body": {"temperature": 0.5}}
    found = imported("vllm", **dict(list(request.items())[::order]))
    assert parts(found) == [{"type": "temperature", "temperature": 0.5}]
    assert sources(found)["processors.0.temperature"] == "extra_body.temperature=0.5"
    assert unsaid(found) == {"temperature": "extra_body.temperature=0.5 says it too, and counts"}
    inner = imported("sglang", extra_body={"sampling_params": {"top_k": 5}})
    assert types(inner) == ["top_k"]


@pytest.mark.parametrize(
    "text", ['{"top_p": 0.5, "top_p": 0.9}', '{"logit_bias": {"5": 1, "5": 2}}']
)
def test_a_key_that_stands_twice_in_json_is_refused(text: str, tmp_path: Any) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"request.json: the key '.*' stands twice"):
        imported("openai", file)
    with pytest.raises(InputError, match=r"extra_body=.* stands twice"):
        imported("openai", f"extra_body={text}")


def test_a_word_that_is_nothing() -> None:
    with pytest.raises(InputError, match="neither a JSON file nor name=value"):
        imported("vllm", "temperature")


def test_infinite_numbers_are_listed(tmp_path: Any) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"logit_bias": {"3": 1.5, "4": Infinity, "5": -100}, "user": NaN}')
    found = imported("llama.cpp", file)
    assert parts(found)[0] == {"type": "token_bias", "biases": {3: 1.5, 5: -100.0}}
    assert [each.value for each in found.unsaid] == [{"4": "Infinity"}, "NaN"]


def test_flags_of_llama_cpp() -> None:
    words = (
        "llama-cli -m model.gguf --temp 0.7 --top-k 20 --top-p 1 --min-p 0 -n 128 -s 7 "
        "-l 15043-1 --logit-bias 2+0.5 -r User: --reverse-prompt '###' -ngl 99 --ignore-eos"
    )
    found = imported("llama.cpp", words)
    assert parts(found) == [
        {"type": "token_bias", "biases": {15043: -1.0, 2: 0.5}},
        {"type": "min_new_tokens", "limit": 2**31 - 1},
        {"type": "top_k", "k": 20, "ties": "by_id"},
        {"type": "temperature", "temperature": 0.7},
    ]
    assert stops(found) == [
        {"type": "stop_strings", "strings": ["User:", "###"]},
        {"type": "max_new_tokens", "limit": 128},
    ]
    recipe = found.recipe.document.data
    assert recipe["seed"] == 7
    assert recipe["backend"] == {"type": "pytorch", "model": "model.gguf"}
    said = sources(found)
    assert said["processors.2.k"] == "--top-k 20"
    assert said["processors.0.biases.2"] == "-l 15043-1, --logit-bias 2+0.5"
    assert said["stop_criteria.0.strings.1"] == "-r User:, --reverse-prompt ###"
    assert unsaid(found).keys() == {
        "n_gpu_layers",
        "stop",
    }  # two strings, of which the first counts
    assert not any("no answer ends" in warning for warning in order_warnings(found.recipe))


def test_flags_one_by_one_and_pairs_together() -> None:
    found = imported("llama.cpp", "--temp", "1", "--top-k=0", "top_p=1", "--min-p", "0.2")
    assert parts(found) == [{"type": "min_p", "min_p": 0.2}]


def test_a_flag_that_is_none_is_listed_with_its_value() -> None:
    found = imported("llama.cpp", "--top-kk", "5", "--colour", "--temp", "-1")
    assert [(each.setting, each.value) for each in found.unsaid] == [
        ("--top-kk", "5"),
        ("--colour", True),
    ]
    assert "did you mean '--top-k'" in unsaid(found)["--top-kk"]
    assert parts(found)[-1] == {"type": "temperature", "temperature": 0.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--temp"], "--temp: a value is missing"),
        (["--temp", "warm"], "--temp: a number is expected"),
        (["-l", "5"], r"ID\+BIAS"),
        (["llama-cli --temp '0.5"], "cannot be split"),
    ],
)
def test_flags_that_are_wrong(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported("llama.cpp", *words)


def test_flags_of_mlx() -> None:
    words = (
        "mlx_lm.generate --model some/repo -p Hi --temp 0.7 --top-p 0.9 --min-p 0.1 --top-k 5 "
        "--min-tokens-to-keep 2 --xtc-probability 0.3 --seed 3"
    )
    found = imported("mlx", words)
    assert types(found) == ["top_p", "min_p", "xtc", "top_k", "temperature"]
    assert parts(found)[1] == {"type": "min_p", "min_p": 0.1, "min_keep": 2}
    assert sources(found)["processors.0.p"] == "--top-p 0.9"
    recipe = found.recipe.document.data
    assert (recipe["seed"], recipe["backend"]["model"]) == (3, "some/repo")
    # The program has defaults of its own.
    assert recipe["context"] == {"type": "chat"}
    assert stops(found)[-1] == {"type": "max_new_tokens", "limit": 100}
    assert unsaid(found).keys() == {"prompt", "xtc_special_tokens"}
    functions = imported("mlx", "temp=0.7", "top-p=0.5")
    assert functions.recipe.context.type == "text"
    assert stops(functions)[-1]["limit"] == 256


def test_the_prompts_of_mlx() -> None:
    found = imported("mlx", "-m", "9", "--system-prompt", "Be brief.")
    assert stops(found)[-1]["limit"] == 9
    assert found.recipe.context.system == "Be brief."
    raw = imported(
        "mlx", "--ignore-chat-template", "--system-prompt=x", "--repetition-penalty", "2"
    )
    assert raw.recipe.context.type == "text"
    assert unsaid(raw).keys() == {"system_prompt", "--repetition-penalty"}
    assert "it is no flag of mlx" in unsaid(raw)["--repetition-penalty"]


# --- the model ---------------------------------------------------------------------------


def test_the_model_is_assumed_where_none_is_named() -> None:
    found = imported("vllm")
    assert found.recipe.document.data["backend"] == {"type": "pytorch", "model": "smollm2"}
    assert sources(found)["backend.model"] == "assumed: the settings name no model"


def test_the_model_that_is_asked_for_wins() -> None:
    found = imported("vllm", model="a/b", temperature=1)
    assert found.recipe.document.data["backend"]["model"] == "a/b"
    given = import_recipe("vllm", {"model": "c/d"}, model="a/b", registry=REGISTRY)
    assert given.recipe.document.data["backend"]["model"] == "a/b"
    assert unsaid(given) == {"model": "--model says another one"}


def test_a_hub_model_of_llama_cpp() -> None:
    found = imported("llama.cpp", "-hf", "some/repo:Q4_K_M")
    assert found.recipe.document.data["backend"]["model"] == "some/repo"
    assert "hf_repo" in unsaid(found)


@pytest.mark.parametrize(
    ("engine", "words"),
    [("llama.cpp", ["-hf", "a" * 5000]), ("vllm", ["model=a/" + "b" * 5000])],
)
def test_a_name_that_is_too_long(engine: str, words: list[str]) -> None:
    with pytest.raises(InputError, match=r"the model '.{50}': File name too long") as caught:
        imported(engine, *words)
    assert len(str(caught.value)) < 200


def test_a_file_whose_name_is_too_long() -> None:
    with pytest.raises(InputError, match="File name too long"):
        imported("hf", "a" * 5000 + ".json")


def test_a_name_that_only_a_service_knows_is_listed() -> None:
    found = import_recipe("openai", {"model": "gpt-large"}, registry=REGISTRY)
    assert found.recipe.document.data["backend"]["model"] == "smollm2"
    assert "model" in unsaid(found)


def test_the_folder_of_the_settings_is_the_model(tmp_path: Any) -> None:
    file = tmp_path / "generation_config.json"
    file.write_text("{}")
    assert imported("hf", file).recipe.document.data["backend"]["model"] == "smollm2"
    (tmp_path / "config.json").write_text("{}")
    assert imported("hf", file).recipe.document.data["backend"] == {
        "type": "pytorch",
        "model": str(tmp_path),
    }


def test_genai_config(tmp_path: Any) -> None:
    file = tmp_path / "genai_config.json"
    search = {"do_sample": True, "top_k": 3, "top_p": 0.9, "temperature": 0.5, "max_length": 99}
    model = {"type": "llama", "eos_token_id": [2], "context_length": 8192}
    file.write_text(json.dumps({"model": model, "search": search}))
    found = imported("onnxruntime-genai", file)
    assert types(found) == ["top_k", "temperature", "top_p"]
    assert found.unsaid == ()
    assert found.recipe.document.data["backend"]["type"] == "onnxruntime"
    assert stops(found) == [
        {"type": "eos", "token_ids": [2]},
        {"type": "max_length", "limit": 99},
    ]
    assert sources(found)["processors.0.k"] == "genai_config.json: search.top_k"


# --- temperature 0, and what engines refuse ----------------------------------------------


@pytest.mark.parametrize(
    ("words", "cache", "unsaid"),
    [
        ([], "dynamic", []),
        (["use_cache=true"], "dynamic", []),
        (["use_cache=false"], "none", []),
        (["cache_implementation=static"], "static", []),
        (["cache_implementation=quantized"], "dynamic", ["cache_implementation"]),
        (["use_cache=false", "cache_implementation=static"], "none", ["cache_implementation"]),
    ],
)
def test_caches_of_transformers(words: list[str], cache: str, unsaid: list[str]) -> None:
    imported = import_recipe("hf", words)
    assert imported.recipe.cache.type == cache
    assert [each.setting for each in imported.unsaid] == unsaid


def test_what_a_temperature_of_0_means() -> None:
    for engine in ("vllm", "sglang", "openai", "mlx", "llama-cpp-python"):
        found = import_recipe(engine, {"temperature": 0, "top_p": 0.5}, registry=REGISTRY)
        assert found.recipe.sampler.type == "greedy", engine
        assert types(found) == [], engine
        assert unsaid(found).keys() == {"top_p"}, engine
    found = imported("llama.cpp", temperature=0)
    assert types(found) == ["top_k", "top_p", "min_p", "temperature"]
    assert parts(found)[-1]["temperature"] == 0
    with pytest.raises(InputError, match="hf wants temperature above 0"):
        imported("hf", do_sample=True, temperature=0)


def test_temperatures_near_0() -> None:
    assert imported("vllm", temperature=9e-6).recipe.sampler.type == "greedy"
    found = imported("vllm", temperature=2e-5)
    assert parts(found) == [{"type": "temperature", "temperature": 0.01}]
    assert "temperature" in unsaid(found)
    assert imported("sglang", temperature=9e-7).recipe.sampler.type == "greedy"
    assert imported("sglang", temperature=2e-6).recipe.sampler.type == "categorical"


def test_a_negative_temperature_of_llama_cpp_python_draws_from_all_tokens() -> None:
    found = import_recipe("llama-cpp-python", {"temperature": -1, "top_k": 3}, registry=REGISTRY)
    assert (types(found), found.recipe.sampler.type) == ([], "categorical")
    assert unsaid(found).keys() == {"top_k"}


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("vllm", "temperature", 2.5),
        ("vllm", "top_p", 0),
        ("vllm", "presence_penalty", 3),
        ("sglang", "repetition_penalty", 2.5),
        ("openai", "frequency_penalty", -3),
        ("hf", "num_beams", 0),
        ("vllm", "top_k", "many"),
        ("vllm", "top_k", 2.5),
        ("vllm", "ignore_eos", "yes"),
        ("vllm", "stop", 5),
        ("vllm", "temperature", True),
        ("hf", "bad_words_ids", [1]),
        ("hf", "exponential_decay_length_penalty", 3),
        ("hf", "sequence_bias", [1]),
        ("openai", "logit_bias", 3),
        ("openai", "logit_bias", {"5": 150}),
        ("openai", "logit_bias", {"5": -math.inf}),
        ("openai", "logit_bias", {"five": 1}),
        ("openai", "stop", ["a", "b", "c", "d", "e"]),
        ("openai", "messages", "hi"),
        ("vllm", "model", 1),
        ("vllm", "repetition_detection", {"max_size": 3}),
        ("llama.cpp", "sampling_seq", 5),
    ],
)
def test_what_the_engine_refuses_is_an_error(engine: str, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        import_recipe(engine, {name: value}, registry=REGISTRY)


@pytest.mark.parametrize(
    ("engine", "settings", "name"),
    [
        ("hf", {}, "top_k"),
        ("onnxruntime-genai", {}, "top_k"),
        ("vllm", {"temperature": 0}, "top_k"),
        ("sglang", {"temperature": 0}, "top_k"),
        ("openai", {"temperature": 0}, "top_p"),
        ("mlx", {"temp": 0}, "min_p"),
    ],
)
@pytest.mark.parametrize("value", [-7, "x"])
def test_a_setting_that_does_nothing_is_checked_all_the_same(
    engine: str, settings: dict[str, Any], name: str, value: Any
) -> None:
    with pytest.raises(InputError, match=name):
        import_recipe(engine, {**settings, name: value}, registry=REGISTRY)


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("llama.cpp", {"mirostat_tau": "x"}),
        ("llama-cpp-python", {"mirostat_eta": "x"}),
        ("llama-cpp-python", {"temperature": 0, "min_p": "x"}),
    ],
)
def test_text_where_a_number_belongs_is_refused_where_it_does_nothing(
    engine: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="a number is expected"):
        import_recipe(engine, settings, registry=REGISTRY)


@pytest.mark.parametrize("engine", ["hf", "onnxruntime-genai"])
def test_a_temperature_of_0_is_fine_where_nothing_is_drawn(engine: str) -> None:
    assert unsaid(imported(engine, temperature=0)).keys() == {"temperature"}


def test_all_that_is_refused_is_said_at_once() -> None:
    with pytest.raises(GenkitError, match=r"temperature=3.*top_p=0"):
        imported("vllm", temperature=3, top_p=0)


def test_what_is_out_of_our_range_is_listed() -> None:
    found = imported("hf", repetition_penalty=1e30)
    assert types(found) == []
    assert "repetition_penalty does not take it" in unsaid(found)["repetition_penalty"]
    assert unsaid(imported("vllm", seed=-5)) == {"seed": "a seed is 0 or more"}


# --- transformers ------------------------------------------------------------------------


def test_hf_without_draws_says_what_it_ignores() -> None:
    found = imported("hf", temperature=0.7, top_k=5, repetition_penalty=1.1)
    assert types(found) == ["repetition_penalty"]
    assert found.recipe.sampler.type == "greedy"
    assert unsaid(found).keys() == {"temperature", "top_k"}


def test_hf_order() -> None:
    found = imported(
        "hf",
        do_sample=True,
        eta_cutoff=0.1,
        epsilon_cutoff=0.1,
        typical_p=0.9,
        min_p=0.1,
        top_p=0.9,
        top_k=5,
        top_h=0.5,
        temperature=0.5,
        begin_suppress_tokens=[1],
        suppress_tokens=[2],
        exponential_decay_length_penalty=[3, 1.1],
        remove_invalid_values=True,
        forced_eos_token_id=2,
        forced_bos_token_id=0,
        min_new_tokens=1,
        min_length=1,
        bad_words_ids=[[3]],
        encoder_no_repeat_ngram_size=2,
        no_repeat_ngram_size=2,
        repetition_penalty=1.1,
        encoder_repetition_penalty=1.1,
        sequence_bias=[[[5, 6], 1.0], [[5, 6], 2.0]],
        watermarking_config={"greenlist_ratio": 0.5, "seeding_scheme": "selfhash"},
        renormalize_logits=True,
    )
    assert types(found) == [
        "sequence_bias",
        "prompt_repetition_penalty",
        "repetition_penalty",
        "no_repeat_ngram",
        "prompt_no_repeat_ngram",
        "bad_words",
        "min_length",
        "min_new_tokens",
        "forced_bos",
        "forced_eos",
        "remove_invalid",
        "length_decay",
        "suppress_tokens",
        "begin_suppress_tokens",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "epsilon",
        "eta",
        "watermark",
        "renormalize",
    ]
    assert parts(found)[0]["sequences"] == [{"token_ids": [5, 6], "bias": 2.0}]
    scheme = {"type": "green_list", "ratio": 0.5, "seeding": "selfhash"}
    assert parts(found)[-2]["scheme"] == scheme
    # Where a forced token comes first, and in a batch.
    assert unsaid(found).keys() == {"begin_suppress_tokens", "min_length"}


def test_hf_synthid() -> None:
    config = {"keys": [1, 2], "ngram_len": 3, "debug_mode": False}
    found = imported("hf", watermarking_config=config)
    assert parts(found)[0]["scheme"] == {"type": "synthid", "keys": [1, 2], "ngram_len": 3}


def test_hf_beams() -> None:
    found = imported("hf", do_sample=True, num_beams=3, eos_token_id=[1, 2], length_penalty=2.0)
    assert unsaid(found).keys() == {"num_beams", "length_penalty"}
    assert parts(found) == [
        {"type": "renormalize"},
        {"type": "top_k", "k": 50, "ties": "keep", "min_keep": 3},
    ]


@pytest.mark.parametrize(
    ("settings", "criterion"),
    [
        ({}, {"type": "max_new_tokens", "limit": 20}),
        ({"max_length": 30}, {"type": "max_length", "limit": 30}),
        ({"max_length": 30, "max_new_tokens": 5}, {"type": "max_new_tokens", "limit": 5}),
    ],
)
def test_hf_lengths(settings: dict[str, Any], criterion: dict[str, Any]) -> None:
    assert stops(imported("hf", **settings)) == [{"type": "eos"}, criterion]


def test_hf_other_ends() -> None:
    found = imported("hf", stop_strings="x", max_time=2, eos_token_id=5)
    assert [stop["type"] for stop in stops(found)] == [
        "eos",
        "stop_strings",
        "max_new_tokens",
        "time_limit",
    ]
    assert stops(found)[1]["include"] is True


# --- vLLM, SGLang, OpenAI ----------------------------------------------------------------


def test_vllm_order() -> None:
    found = imported(
        "vllm",
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        temperature=0.5,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        repetition_penalty=1.1,
        logit_bias={"5": 1},
        min_tokens=3,
        stop_token_ids=[7],
        stop=["x"],
        include_stop_str_in_output=True,
        bad_words=["no"],
        allowed_token_ids=[1, 5],
        repetition_detection={"max_pattern_size": 4, "min_count": 3},
    )
    assert types(found) == [
        "allowed_tokens",
        "bad_words",
        "min_new_tokens",
        "token_bias",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "temperature",
        "min_p",
        "top_k",
        "top_p",
    ]
    assert parts(found)[1] == {"type": "bad_words", "scope": "output", "strings": ["no"]}
    assert parts(found)[2] == {
        "type": "min_new_tokens",
        "limit": 3,
        "if_none_left": "allow",
        "token_ids": [7],
    }
    assert stops(found) == [
        {"type": "eos"},
        {"type": "stop_token_ids", "token_ids": [7]},
        {"type": "stop_strings", "strings": ["x"], "include": True, "min_new_tokens": 3},
        {"type": "max_new_tokens", "limit": 16},
        {"type": "repeating", "max_period": 4, "times": 3, "min_period": 1},
    ]
    assert unsaid(found).keys() == {"bad_words"}


def test_a_chat_request() -> None:
    messages = [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Hi"}]
    found = imported("vllm", messages=messages, ignore_eos=True, n=2, stream=False)
    assert found.recipe.document.data["context"] == {"type": "chat", "system": "Brief."}
    assert stops(found) == []  # the limit is the model's
    assert unsaid(found).keys() == {"messages", "n"}


def test_a_text_request() -> None:
    found = imported("openai", prompt="Once", max_tokens=5, response_format={"type": "json_object"})
    assert found.recipe.document.data["context"] == {"type": "text"}
    assert stops(found)[-1] == {"type": "max_new_tokens", "limit": 5}
    assert unsaid(found).keys() == {"prompt", "response_format"}


def test_two_names_of_one_setting() -> None:
    found = imported("openai", max_tokens=5, max_completion_tokens=7)
    assert stops(found)[-1]["limit"] == 7
    assert unsaid(found) == {"max_tokens": "max_completion_tokens says it too, and counts"}


@pytest.mark.parametrize(
    ("engine", "switch", "off"),
    [("vllm", "generation_config", "vllm"), ("sglang", "sampling_defaults", "openai")],
)
def test_a_model_s_own_settings_are_named(engine: str, switch: str, off: str) -> None:
    [note] = imported(engine, temperature=0.7, top_p=1).unsaid
    assert note.setting == switch
    named = {"repetition_penalty", "top_k", "min_p"}
    assert named <= set(note.reason.replace(",", " ").split())
    assert not {"temperature", "top_p"} & set(note.reason.replace(",", " ").split())
    assert import_recipe(engine, {switch: off}, registry=REGISTRY).unsaid == ()
    neutral = {"temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
    assert import_recipe(engine, neutral, registry=REGISTRY).unsaid == ()


def test_sglang_looks_at_strings_before_tokens() -> None:
    found = imported("sglang", stop=["b", "a"], stop_regex="a+", stop_token_ids=[7])
    kinds = [stop["type"] for stop in stops(found)]
    assert kinds == ["stop_strings", "stop_regex", "eos", "stop_token_ids", "max_new_tokens"]
    assert unsaid(found).keys() == {"stop", "stop_regex", "stop_token_ids"}
    endless = imported("sglang", ignore_eos=True, stop_token_ids=[7], no_stop_trim=True)
    assert [stop["type"] for stop in stops(endless)] == ["max_new_tokens"]
    assert unsaid(endless).keys() == {"stop_token_ids"}


def test_a_stop_token_whose_text_stays_is_not_listed() -> None:
    found = imported("vllm", stop_token_ids=[7], include_stop_str_in_output=True)
    assert unsaid(found) == {}
    assert unsaid(imported("vllm", stop_token_ids=[7])).keys() == {"stop_token_ids"}


@pytest.mark.parametrize(
    ("engine", "stop", "is_listed"),
    [
        ("llama.cpp", ["a", "b"], True),
        ("llama.cpp", ["a"], False),
        ("llama-cpp-python", ["a", "b"], True),
        ("vllm", ["a", "b"], False),
        ("vllm", ["b", "ab"], True),
    ],
)
def test_which_of_several_strings_counts(engine: str, stop: list[str], is_listed: bool) -> None:
    assert ("stop" in unsaid(imported(engine, stop=stop))) == is_listed


def test_a_bias_that_only_the_server_of_vllm_cuts() -> None:
    found = imported("vllm", logit_bias={"5": 150})
    assert parts(found) == [{"type": "token_bias", "biases": {5: 150.0}}]
    assert unsaid(found).keys() == {"logit_bias"}
    assert unsaid(imported("vllm", logit_bias={"5": 100})) == {}


def test_sglang_order() -> None:
    found = imported(
        "sglang",
        min_p=0.1,
        top_k=5,
        top_p=0.9,
        temperature=0.5,
        logit_bias={"5": 1},
        repetition_penalty=1.1,
        min_new_tokens=2,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        stop_regex="a+",
        regex="b+",
    )
    assert types(found) == [
        "frequency_penalty",
        "presence_penalty",
        "min_new_tokens",
        "repetition_penalty",
        "token_bias",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
    ]
    assert parts(found)[3]["scope"] == "output"
    assert parts(found)[6]["rule"] == "above<=p"
    assert unsaid(found).keys() == {"regex", "stop_regex"}


# --- llama.cpp, mlx-lm, onnxruntime-genai ------------------------------------------------


def test_llama_cpp_order_of_the_user() -> None:
    found = imported(
        "llama.cpp", "--samplers", "temp;top-p;typ", "--typical", "0.5", "--mirostat", "0"
    )
    assert types(found) == ["temperature", "top_p", "typical_p"]
    letters = imported("llama.cpp", "--sampling-seq", "tpy", "--typical", "0.5")
    assert parts(letters) == parts(found)


def test_llama_cpp_samplers_that_do_not_exist_or_are_left_out() -> None:
    found = imported("llama.cpp", samplers=["top_k", "infill", "top_q"], top_p=0.5)
    assert types(found) == ["top_k"]
    assert [(each.setting, each.value) for each in found.unsaid] == [
        ("samplers", "infill"),
        ("samplers", "top_q"),
        ("top_p", 0.5),
    ]


def test_llama_cpp_mirostat() -> None:
    found = imported("llama.cpp", "--mirostat", "1", "--mirostat-ent", "3", "--top-k", "5")
    assert types(found) == ["temperature"]
    sampler = found.recipe.document.data["sampler"]
    assert sampler == {
        "type": "mirostat",
        "version": 1,
        "tau": 3,
        "eta": 0.1,
        "huge_k": "keeps_one",
    }
    assert unsaid(found).keys() == {"top_k"}


def test_llama_cpp_adaptive_p() -> None:
    found = imported("llama.cpp", samplers="min_p;adaptive_p", adaptive_target=1.5, temperature=1)
    assert found.recipe.document.data["sampler"] == {
        "type": "adaptive_p",
        "target": 1.0,
        "decay": 0.9,
    }
    assert "adaptive_target" in unsaid(found)


@pytest.mark.parametrize(("word", "value"), [(".5", 0.5), ("-.5e-1", -0.05), ("1.", 1.0)])
def test_numbers_as_people_write_them(word: str, value: float) -> None:
    found = imported("vllm", f"frequency_penalty={word}")
    assert parts(found)[0]["penalty"] == value


def test_entries_of_a_bias_that_a_recipe_cannot_hold_are_listed() -> None:
    biases = {"5": 1, "05": 2, " 6": 3, "1_0": 4, "7": True, "8": 10**400, "9": -math.inf}
    found = imported("sglang", logit_bias=biases, sampling_defaults="openai")
    assert parts(found) == [{"type": "token_bias", "biases": {5: 1.0, 9: "-inf"}}]
    assert {key for each in found.unsaid for key in each.value} == {"05", " 6", "1_0", "7", "8"}
    found = imported("llama.cpp", logit_bias=[[15, 1.0], ["Hello", -0.5], [15, 2], [2, False]])
    assert parts(found)[0] == {"type": "token_bias", "biases": {15: 3.0, 2: "-inf"}}
    assert [each.value for each in found.unsaid] == [{"Hello": -0.5}]
    found = imported("llama.cpp", "-l 5+1 -l 5+2")
    assert parts(found)[0] == {"type": "token_bias", "biases": {5: 3.0}}


def test_json_s_minus_infinity_forbids(tmp_path: Any) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"logit_bias": {"5": -Infinity}}')
    assert parts(imported("sglang", file)) == [{"type": "token_bias", "biases": {5: "-inf"}}]


@pytest.mark.parametrize("engine", ["hf", "vllm", "llama.cpp", "openai"])
@pytest.mark.parametrize("name", ["top_k", "temperature", "seed", "max_tokens"])
def test_a_number_that_is_no_float_is_named(engine: str, name: str) -> None:
    with contextlib.suppress(GenkitError):  # and no OverflowError
        found = imported(engine, **{"do_sample": True, name: 10**400})
        assert name in unsaid(found)


def test_a_prompt_for_the_server_of_llama_cpp_is_raw() -> None:
    raw = imported("llama.cpp", prompt="The capital of France is", n_predict=8)
    assert raw.recipe.context.type == "text"
    assert imported("llama.cpp", "-p hello -n 8").recipe.context.type == "chat"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]
    chat = imported("llama.cpp", messages=messages, max_completion_tokens=12, n=2, user="x")
    assert chat.recipe.context.system == "Be brief."
    assert chat.recipe.stop_criteria[-1].limit == 12
    assert not any("no setting of this name" in each.reason for each in chat.unsaid)


def test_mirostat_s_options_without_it() -> None:
    found = imported("llama.cpp", mirostat=0, mirostat_tau=5, mirostat_eta=0.1)
    assert {each.reason for each in found.unsaid} == {"mirostat is 0"}


def test_a_name_with_dashes_is_a_flag_or_a_field() -> None:
    assert parts(imported("llama.cpp", "top-k=7"))[0]["k"] == 7
    assert parts(imported("vllm", "top-p=0.5"))[0]["p"] == 0.5


def test_llama_cpp_penalties_and_dry() -> None:
    words = (
        "--repeat-penalty 1.1 --frequency-penalty 0.1 --presence-penalty 0.2 --repeat-last-n -1 "
        "--dry-multiplier 0.8 --dry-penalty-last-n 100 --dry-sequence-breaker none "
        "--xtc-probability 0.5 --dynatemp-range 0.9 --temp 0.5 --top-nsigma 1 --typical 0.5"
    )
    found = imported("llama.cpp", words)
    scope = {"scope": "all", "window": None}
    assert parts(found)[:3] == [
        {"type": "repetition_penalty", "penalty": 1.1, **scope},
        {"type": "frequency_penalty", "penalty": 0.1, "presence": 0.2, **scope},
        {
            "type": "dry",
            "multiplier": 0.8,
            "base": 1.75,
            "allowed_length": 2,
            "window": 100,
            "breakers": [],
        },
    ]
    assert parts(found)[-1] == {
        "type": "dynamic_temperature",
        "low": 0.0,
        "high": 1.4,
        "exponent": 1.0,
    }
    # Both meet tokens that top_n_sigma has forbidden.
    assert unsaid(found).keys() == {"typical_p", "dynatemp_range"}
    long = imported("llama.cpp", f"--dry-multiplier 1 --dry-sequence-breaker {'é' * 30}")
    assert parts(long)[0]["breakers"] == ["é" * 20]  # 40 bytes
    off = imported("llama.cpp", "--repeat-penalty 1.1 --repeat-last-n 0")
    assert "repetition_penalty" not in types(off)
    alone = imported("llama.cpp", "--presence-penalty 0.2 --temp 1")
    assert parts(alone)[0] == {
        "type": "presence_penalty",
        "penalty": 0.2,
        "scope": "all",
        "window": 64,
    }


def test_mlx_order() -> None:
    found = imported(
        "mlx",
        temp=0.5,
        top_k=5,
        xtc_probability=0.5,
        min_p=0.1,
        top_p=0.9,
        frequency_penalty=0.1,
        presence_penalty=0.1,
        repetition_penalty=1.1,
        repetition_context_size=7,
        logit_bias={"5": 1},
    )
    assert types(found) == [
        "token_bias",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "top_p",
        "min_p",
        "xtc",
        "top_k",
        "temperature",
    ]
    assert [part.get("window") for part in parts(found)[1:4]] == [7, 20, 20]
    assert unsaid(found).keys() == {"xtc_special_tokens"}


def test_onnxruntime_genai_without_any_limit_takes_the_most_probable() -> None:
    found = imported("onnxruntime-genai", do_sample=True, top_k=0, top_p=0)
    assert parts(found) == [{"type": "top_k", "k": 1}]
    assert types(imported("onnxruntime-genai", do_sample=True, top_k=0, top_p=1)) == []


def test_onnxruntime_genai_without_top_k_may_keep_more() -> None:
    alone = imported("onnxruntime-genai", do_sample=True, top_k=0, top_p=0.9)
    assert unsaid(alone).keys() == {"top_p"}
    assert unsaid(imported("onnxruntime-genai", do_sample=True, top_k=5, top_p=0.9)) == {}


# --- the model's own settings (Blaizzy/mlx-vlm#1331) -------------------------------------


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("model")
    zoo.build("llama").save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 3}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def test_call_before_recipe_before_model_file_before_neutral(model_folder: Any) -> None:
    """A model's file counts where it is imported, which shows; a run never reads it by itself."""
    kit = Kit(entry_points=False)
    plain = {
        "version": 1,
        "backend": {"type": "pytorch", "model": str(model_folder)},
        "sampler": {"type": "categorical"},
        "stop_criteria": [{"type": "max_new_tokens", "limit": 4}],
    }
    file = model_folder / "generation_config.json"

    def num_kept(recipe: Any) -> set[int]:
        steps = kit.build(recipe).decode([5, 6, 7], seed=1)
        return {int((step.logits > float("-inf")).sum()) for step in steps}

    assert num_kept(kit.recipe(plain)) == {97}  # neutral
    assert num_kept(kit.recipe({**plain, "processors": [{"type": "top_k", "k": 5}]})) == {5}
    of_file = import_recipe("hf", [file], registry=kit.registry)
    assert num_kept(of_file.recipe) == {3}
    assert sources(of_file)["processors.0.k"] == "generation_config.json: top_k"
    of_call = import_recipe("hf", [file, "top_k=5"], registry=kit.registry)
    assert num_kept(of_call.recipe) == {5}
    assert sources(of_call)["processors.0.k"] == "top_k=5"
    changed = kit.recipe(of_file.recipe.to_dict(), ["processors.0.k=7"])
    assert num_kept(changed) == {7}
    assert changed.document.source(("processors", 0, "k")) == "--set processors.0.k=7"


def test_temperature_first_and_last_keep_different_tokens() -> None:
    """ggml-org/llama.cpp#4091: the same numbers in the order of two engines."""
    from genkit.testing import process

    last = imported("llama.cpp", top_k=0, min_p=0, top_p=0.8, temperature=0.5)
    first = imported("hf", do_sample=True, top_k=0, top_p=0.8, temperature=0.5)
    assert (types(last), types(first)) == (["top_p", "temperature"], ["temperature", "top_p"])

    def kept(found: Imported) -> list[float]:
        logits = [3.0, 2.0, 1.0]
        for part in found.recipe.processors:
            logits = process(part, logits)
        return logits

    assert kept(last) == [6.0, 4.0, float("-inf")]
    assert kept(first) == [6.0, float("-inf"), float("-inf")]
