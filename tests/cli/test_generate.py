from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from genkit.cli.text_input import unescape
from genkit.errors import InputError

RESULT_KEYS = {
    "text",
    "token_ids",
    "prompt_ids",
    "finish_reason",
    "stop",
    "seed",
    "sample",
    "num_prompt_tokens",
    "num_generated_tokens",
    "logprobs",
}


def test_text_goes_to_standard_output_and_ends_with_a_line_break(
    genkit: Any, scripted: Path
) -> None:
    done = genkit("generate", "-r", scripted, "hi")
    assert (done.status, done.out) == (0, "Hello.\n")
    assert done.err == "loading the scripted model\n"


def test_real_process_whose_output_nobody_reads_to_the_end(
    command: Any, scripted: Path, plugin: Path
) -> None:
    words = command(
        "generate", "--plugin", plugin, "-r", scripted, "--set", "backend.seconds=0.1", "-"
    )
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"hi\n")
        running.stdin.close()
        assert running.stdout.read(1) == b"H"
        running.stdout.close()
        assert running.stderr.read() == b"loading the scripted model\n"
        assert running.wait() == 141


def test_log_probabilities_are_in_the_document(genkit: Any, scripted: Path) -> None:
    done = genkit("generate", "-r", scripted, "hi", "--json", "--logprobs", 2)
    [result] = done.json["results"]
    assert [entry["token_id"] for entry in result["logprobs"]] == result["token_ids"]
    for entry in result["logprobs"]:
        assert entry["raw"] <= 0 and len(entry["top_raw"]) == len(entry["top_processed"]) == 2
    done = genkit("generate", "-r", scripted, "hi", "--logprobs", 2)
    assert done.status == 2 and "--json" in done.err


def test_json_has_the_keys_of_the_interface(genkit: Any, scripted: Path) -> None:
    done = genkit("generate", "-r", scripted, "hi", "--json", "--seed", 5)
    document = done.json
    assert set(document) == {"results", "timing", "runs_on", "settings"}
    by_path = {setting["path"]: setting for setting in document["settings"]}
    assert by_path["sampler.type"]["value"] == "greedy"
    assert by_path["sampler.type"].keys() == {"path", "value", "source"}
    assert document["runs_on"] == "cpu"
    assert set(document["timing"]) == {"prefill_seconds", "decode_seconds", "tokens_per_second"}
    [result] = document["results"]
    assert set(result) >= RESULT_KEYS
    assert (result["finish_reason"], result["stop"]["criterion"]) == ("stop", "eos")
    assert result["num_generated_tokens"] == len(result["token_ids"]) == len("Hello.") + 1
    assert (result["seed"], result["sample"]) == (5, 0)
    assert document["timing"]["prefill_seconds"] > 0
    assert document["timing"]["tokens_per_second"] > 0


def test_summary_only_when_asked_for(genkit: Any, scripted: Path) -> None:
    assert "seed" not in genkit("generate", "-r", scripted, "hi").err
    done = genkit("generate", "-r", scripted, "hi", "--verbose", "--seed", 9)
    assert "7 tokens" in done.err
    assert "stop (eos)" in done.err
    assert "seed 9" in done.err
    assert done.out == "Hello.\n"


def test_a_run_repeats_under_the_seed_it_reports(genkit: Any, tiny: Path) -> None:
    [first] = genkit("generate", "-r", tiny, "hi", "--json").json["results"]
    [again] = genkit("generate", "-r", tiny, "hi", "--json", "--seed", first["seed"]).json[
        "results"
    ]
    assert again == first


def test_without_a_seed_every_call_draws_its_own(genkit: Any, tiny: Path) -> None:
    """SEED-06."""
    runs = [genkit("generate", "-r", tiny, "hi", "--json").json["results"][0] for _ in range(5)]
    assert len({run["seed"] for run in runs}) == 5
    assert len({tuple(run["token_ids"]) for run in runs}) == 5


def test_the_seed_of_the_call_beats_that_of_the_recipe(genkit: Any, tiny: Path) -> None:
    of_recipe = genkit("generate", "-r", tiny, "hi", "--json", "--set", "seed=1").json
    of_call = genkit("generate", "-r", tiny, "hi", "--json", "--set", "seed=1", "--seed", 2).json
    assert of_recipe["results"][0]["seed"] == 1
    assert of_call["results"][0]["seed"] == 2


def test_max_new_tokens_replaces_the_limit(genkit: Any, tiny: Path, scripted: Path) -> None:
    shorter = genkit("generate", "-r", tiny, "hi", "--json", "--max-new-tokens", 3).json
    longer = genkit("generate", "-r", tiny, "hi", "--json", "--max-new-tokens", 12).json
    assert shorter["results"][0]["num_generated_tokens"] == 3
    assert longer["results"][0]["num_generated_tokens"] == 12
    assert shorter["results"][0]["finish_reason"] == "length"


def test_several_samples_have_headings_beside_the_text(genkit: Any, tiny: Path) -> None:
    arguments = ["generate", "-r", tiny, "hi", "--num-samples", 3, "--seed", 4]
    results = genkit(*arguments, "--json").json["results"]
    assert [result["sample"] for result in results] == [0, 1, 2]
    done = genkit(*arguments)
    assert done.out == "".join(result["text"] + "\n" for result in results)
    assert [line for line in done.err.splitlines() if "sample" in line] == [
        "sample 1 of 3",
        "sample 2 of 3",
        "sample 3 of 3",
    ]


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["a\\nb"], "", b"a\\nb"),
        (['{"path": "C:\\temp\\new"}'], "", b'{"path": "C:\\temp\\new"}'),
        (["a\\nb", "--escapes"], "", b"a\nb"),
        ([], "a\\nb\n", b"a\\nb"),
        (["-"], "a\\tb", b"a\\tb"),
        (["-", "--escapes"], "a\\tb\n", b"a\tb"),
        ([], "two\nlines\r\n", b"two\nlines"),
        ([], "\ufeffmarked", b"marked"),
        (["\u00e9"], "", "\u00e9".encode()),
    ],
)
def test_prompts_are_literal_unless_escapes_are_asked_for(
    genkit: Any, scripted: Path, arguments: list[str], stdin: str, expected: bytes
) -> None:
    done = genkit("generate", "-r", scripted, "--json", *arguments, stdin=stdin)
    assert done.status == 0
    ids = done.json["results"][0]["prompt_ids"]
    assert bytes(ids[1 + len("user\n") : ids.index(259)]) == expected


def test_prompt_file_is_literal_but_for_its_last_line_break(
    genkit: Any, scripted: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"a\\nb\n\n")
    ids = genkit("generate", "-r", scripted, "--json", "--prompt-file", file).json["results"][0][
        "prompt_ids"
    ]
    assert bytes(ids[6 : ids.index(259)]) == b"a\\nb\n"


def test_escapes_hold_for_system_and_stop_alike(genkit: Any, scripted: Path) -> None:
    arguments = ["generate", "-r", scripted, "hi", "--json", "--set", r'backend.text="a\nb\\nc"']
    literal = genkit(*arguments, "--system", r"x\ty", "--stop", r"\n").json["results"][0]
    escaped = genkit(*arguments, "--system", r"x\ty", "--stop", r"\n", "--escapes").json["results"][
        0
    ]
    assert (literal["text"], literal["stop"]["matched"]) == ("a\nb", "\\n")
    assert (escaped["text"], escaped["stop"]["matched"]) == ("a", "\n")
    assert b"x\\ty" in bytes(i for i in literal["prompt_ids"] if i < 256)
    assert b"x\ty" in bytes(i for i in escaped["prompt_ids"] if i < 256)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\n\t\\\r", "\n\t\\\r"),
        (r"\x41\u00e9\U0001f600", "Aé😀"),
        (r"\ud83d\ude00", "😀"),
        (r"\\n", r"\n"),
        ("a\nb", "a\nb"),
        (r"\"\'", "\"'"),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert unescape(text) == expected


@pytest.mark.parametrize("text", [r"\q", "\\", r"\u12", r"\x4", r"\U00110000", r"\ud83d"])
def test_wrong_escapes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--escapes"):
        unescape(text)


def test_stop_replaces_the_strings_of_the_recipe(genkit: Any, scripted: Path) -> None:
    recipe = [
        "--set",
        "stop_criteria=[{type: stop_strings, strings: [l], include: true}, {type: eos}]",
    ]
    arguments = ["generate", "-r", scripted, "hi", *recipe]
    assert genkit(*arguments).out == "Hel\n"
    assert genkit(*arguments, "--stop", "o", "--stop", ".").out == "Hell\n"


def test_stop_cuts_an_answer_that_ends_at_its_limit(genkit: Any, scripted: Path) -> None:
    done = genkit("generate", "-r", scripted, "hi", "--stop", "ll", "--max-new-tokens", 4, "--json")
    [result] = done.json["results"]
    assert (result["text"], result["finish_reason"]) == ("He", "stop")


def test_system_replaces_that_of_the_recipe(genkit: Any, tiny: Path) -> None:
    done = genkit("generate", "-r", tiny, "hi", "--json", "--system", "Loud!")
    shown = bytes(i for i in done.json["results"][0]["prompt_ids"] if i < 256)
    assert b"Loud!" in shown
    assert b"Brief." not in shown


def test_system_needs_a_context_that_has_one(genkit: Any, tiny: Path) -> None:
    done = genkit("generate", "-r", tiny, "hi", "--set", "context={type: text}", "--system", "x")
    assert done.status == 1
    assert done.err.startswith("error: --system: the recipe's context is 'text'")


@pytest.mark.parametrize("json_wanted", [False, True])
def test_interrupt_keeps_the_text_so_far(genkit: Any, scripted: Path, json_wanted: bool) -> None:
    arguments = ["generate", "-r", scripted, "hi", "--set", "backend.interrupt_at=4"]
    done = genkit(*arguments, *(["--json"] if json_wanted else []))
    assert done.status == 130
    assert "Traceback" not in done.err
    assert "error" not in done.err
    if not json_wanted:
        assert done.out == "Hell\n"
        return
    [result] = done.json["results"]
    assert (result["text"], result["finish_reason"]) == ("Hell", "cancelled")


def test_interrupt_before_the_first_token(genkit: Any, scripted: Path) -> None:
    done = genkit("generate", "-r", scripted, "hi", "--set", "backend.interrupt_at=0")
    assert (done.status, done.out) == (130, "")
    assert done.err.endswith("\n\n")


def test_a_run_that_fails_keeps_what_was_printed(genkit: Any, scripted: Path) -> None:
    arguments = ["generate", "-r", scripted, "hi", "--set", "backend.fail_at=4"]
    done = genkit(*arguments)
    assert (done.status, done.out) == (1, "Hell\n")
    assert "out of memory" in done.err
    assert "Traceback" not in done.err
    done = genkit(*arguments, "--json")
    assert done.status == 1
    assert done.json["results"][0]["finish_reason"] == "error"


def test_debug_shows_the_traceback(genkit: Any, scripted: Path) -> None:
    for place in (0, 1):
        arguments = ["generate", "-r", str(scripted), "hi", "--set", "backend.fail_at=0"]
        arguments.insert(place, "--debug")
        assert "Traceback" in genkit(*arguments).err


def test_output_that_nobody_reads_is_quiet(
    genkit: Any, scripted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("genkit.cli.generate.write", refuse)
    done = genkit("generate", "-r", scripted, "hi")
    assert done.status == 141
    assert done.err == "loading the scripted model\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"processors": [{"type": "temprature", "temperature": 1}]}, ["'temperature'", "line"]),
        (
            {"processors": [{"type": "temperature", "temperature": -1}]},
            ["processors.0.temperature", "greater than or equal to 0"],
        ),
        ({"processors": [{"type": "top_k", "k": 0}]}, ["processors.0.k", "found"]),
        ({"processors": [{"type": "top_p", "p": 1.5}]}, ["processors.0.p", "1.5"]),
        ({"processors": [{"type": "top_p", "q": 0.5}]}, ["no such option", "p"]),
        ({"stop_criteria": [{"type": "stop_strings", "strings": []}]}, ["strings"]),
        ({"sampler": "greedy"}, ["sampler", "{type: greedy}"]),
        ({"procesors": []}, ["did you mean 'processors'"]),
        (
            {
                "stop_criteria": [
                    {"type": "max_new_tokens", "limit": 9},
                    {"type": "max_length", "limit": 5},
                ]
            },
            ["max_new_tokens", "max_length"],
        ),
        ({"backend": {"type": "pytorch", "model": "x", "dtype": "float31"}}, ["backend.dtype"]),
        ({"backend": {"type": "pytorch", "model": "x", "device": "gpu"}}, ["backend.device"]),
    ],
)
def test_wrong_recipes_are_refused_before_the_model_is_loaded(
    genkit: Any, tmp_path: Path, options: dict[str, Any], words: list[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    recipe = {"version": 1, "backend": {"type": "tiny"}} | options
    file.write_text(json.dumps(recipe, indent=1))
    done = genkit("generate", "-r", file, "hi")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert "loading" not in done.err
    assert "Traceback" not in done.err
    assert f"{file}:" in done.err
    for word in words:
        assert word == "line" or word in done.err, done.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["-r", "tiny", ""], "", "the prompt is empty"),
        (["-r", "tiny"], "", "the prompt is empty"),
        (["-r", "tiny"], b"\xff\xfe", "standard input is not UTF-8: byte 0"),
        (["-r", "tiny", "a\udcff"], "", "the prompt is not UTF-8"),
        (["-r", "tiny", "--prompt-file", "missing.txt"], "", "missing.txt: No such file"),
        (["-r", "tiny", "hi", "--set", "seed"], "", "--set seed"),
        (["-r", "tiny", "hi", "--set", "procesors.0=1"], "", "did you mean 'processors'"),
        (["-r", "missing.yaml", "hi"], "", "missing.yaml"),
        (["-r", "tiny", "hi", "--stop", ""], "", "--stop is empty"),
        (["-r", "tiny", "hi\\q", "--escapes"], "", r"\q is no escape"),
    ],
)
def test_wrong_input_is_refused_before_the_model_is_loaded(
    genkit: Any, tiny: Path, arguments: list[str], stdin: str | bytes, message: str
) -> None:
    done = genkit("generate", *[tiny if a == "tiny" else a for a in arguments], stdin=stdin)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "loading" not in done.err


def test_not_yaml(genkit: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nbackend: {type: tiny\ncontext: x: y\n")
    done = genkit("generate", "-r", file, "hi")
    assert done.status == 1
    assert f"{file}:" in done.err
    assert "YAML" in done.err


def test_unknown_recipe_names_the_nearest(
    genkit: Any, plugin: Path, tmp_path: Path, tiny: Path
) -> None:
    other = tmp_path / "named.py"
    other.write_text(
        "from genkit.plugins import hookimpl\n"
        f"@hookimpl\ndef genkit_register_recipes():\n    return [{str(tiny)!r}]\n"
    )
    done = genkit("generate", "--plugin", other, "-r", "tinny", "hi")
    assert done.status == 1
    assert "no recipe named 'tinny', did you mean 'tiny'?" in done.err
    assert genkit("generate", "--plugin", other, "-r", "tiny", "hi").status == 0


def test_prompt_beyond_the_context(genkit: Any, tiny: Path) -> None:
    done = genkit("generate", "-r", tiny, "x" * 300)
    assert (done.status, done.out) == (1, "")
    assert "at most" in done.err
    assert "truncate_left" in done.err
    cut = genkit("generate", "-r", tiny, "x" * 300, "--set", "context.overflow=truncate_left")
    assert cut.status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-new-tokens", "0", "hi"],
        ["--num-samples", "0", "hi"],
        ["--seed", "-1", "hi"],
        ["--seed", "x", "hi"],
        ["--nonsense", "hi"],
        ["hi", "there"],
    ],
)
def test_wrong_usage(genkit: Any, arguments: list[str]) -> None:
    done = genkit("generate", *arguments)
    assert (done.status, done.out) == (2, "")
    assert "Usage: genkit generate" in done.err


def test_no_prompt_on_a_terminal_is_wrong_usage(genkit: Any, tiny: Path, tmp_path: Path) -> None:
    done = genkit("generate", "-r", tiny, terminal=True)
    assert done.status == 2
    assert "the prompt" in done.err
    file = tmp_path / "prompt.txt"
    file.write_text("hi")
    assert genkit("generate", "-r", tiny, "hi", "--prompt-file", file).status == 2
