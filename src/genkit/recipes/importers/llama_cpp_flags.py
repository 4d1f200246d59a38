"""The flags of llama.cpp's programs, read as the settings of its server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from genkit.errors import InputError, nearest

_NUMBERS = {
    "--temp": "temperature",
    "--temperature": "temperature",
    "--top-k": "top_k",
    "--top-p": "top_p",
    "--min-p": "min_p",
    "--top-nsigma": "top_n_sigma",
    "--top-n-sigma": "top_n_sigma",
    "--typical": "typical_p",
    "--typical-p": "typical_p",
    "--xtc-probability": "xtc_probability",
    "--xtc-threshold": "xtc_threshold",
    "--repeat-last-n": "repeat_last_n",
    "--repeat-penalty": "repeat_penalty",
    "--presence-penalty": "presence_penalty",
    "--frequency-penalty": "frequency_penalty",
    "--dry-multiplier": "dry_multiplier",
    "--dry-base": "dry_base",
    "--dry-allowed-length": "dry_allowed_length",
    "--dry-penalty-last-n": "dry_penalty_last_n",
    "--dynatemp-range": "dynatemp_range",
    "--dynatemp-exp": "dynatemp_exponent",
    "--mirostat": "mirostat",
    "--mirostat-lr": "mirostat_eta",
    "--mirostat-ent": "mirostat_tau",
    "--adaptive-target": "adaptive_target",
    "--adaptive-decay": "adaptive_decay",
    "-s": "seed",
    "--seed": "seed",
    "-n": "n_predict",
    "--predict": "n_predict",
    "--n-predict": "n_predict",
    "-c": "n_ctx",
    "--ctx-size": "n_ctx",
    "--keep": "n_keep",
    "-t": "threads",
    "--threads": "threads",
    "-b": "n_batch",
    "--batch-size": "n_batch",
    "-ub": "n_ubatch",
    "--ubatch-size": "n_ubatch",
}

_TEXTS = {
    "--samplers": "samplers",
    "--sampling-seq": "sampling_seq",
    "--sampler-seq": "sampling_seq",
    "-m": "model",
    "--model": "model",
    "-hf": "hf_repo",
    "-hfr": "hf_repo",
    "--hf-repo": "hf_repo",
    "-p": "prompt",
    "--prompt": "prompt",
    "-f": "prompt_file",
    "--file": "prompt_file",
    "-sys": "system_prompt",
    "--system-prompt": "system_prompt",
    "--grammar": "grammar",
    "--grammar-file": "grammar",
    "-j": "json_schema",
    "--json-schema": "json_schema",
    "-ngl": "n_gpu_layers",
    "--gpu-layers": "n_gpu_layers",
    "--n-gpu-layers": "n_gpu_layers",
    "-fa": "flash_attention",
    "--flash-attn": "flash_attention",
    "-md": "model_draft",
    "--model-draft": "model_draft",
}

_LISTS = {
    "-r": "stop",
    "--reverse-prompt": "stop",
    "--dry-sequence-breaker": "dry_sequence_breakers",
    "-l": "logit_bias",
    "--logit-bias": "logit_bias",
}
"""Flags that may come several times."""

_SWITCHES = {
    "--ignore-eos": ("ignore_eos", True),
    "-cnv": ("conversation", True),
    "--conversation": ("conversation", True),
    "-no-cnv": ("conversation", False),
    "--no-conversation": ("conversation", False),
}

_BIAS = re.compile(r"(\d+)([+-])(\S+)")
_NEGATIVE = re.compile(r"-\.?\d")


class FlagSaid(NamedTuple):
    """What one flag says."""

    name: str
    value: Any
    flag: str


def is_flag(word: str) -> bool:
    """Whether a word names a flag; a negative number does not."""
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word)


def read(words: Sequence[str]) -> tuple[FlagSaid, int]:
    """What the first flag says, and how many words it takes.

    Raises:
        InputError: its value is missing or is none.
    """
    flag, equals, attached = words[0].partition("=")
    if flag in _SWITCHES and not equals:
        return FlagSaid(*_SWITCHES[flag], flag), 1
    rest = [attached] if equals else list(words[1:2])
    takes_value = flag in _NUMBERS or flag in _TEXTS or flag in _LISTS
    if takes_value and not rest:
        raise InputError(f"{flag}: a value is missing")
    used = 1 if equals else 2
    if flag in _NUMBERS:
        return FlagSaid(_NUMBERS[flag], _number(flag, rest[0]), flag), used
    if takes_value:
        return FlagSaid((_TEXTS | _LISTS)[flag], rest[0], flag), used
    # One that is not known has a value where something follows that is no flag.
    if rest and (equals or not is_flag(rest[0])):
        return FlagSaid(flag, rest[0], flag), used
    return FlagSaid(flag, True, flag), 1


def merge(settings: dict[str, tuple[Any, str]], said: FlagSaid) -> None:
    """Add what a flag says to settings; a flag that may come several times is added to its list."""
    if said.flag == "--grammar-file":
        said = said._replace(value=f"file {said.value}")
    if said.flag not in _LISTS:
        settings[said.name] = (said.value, said.flag)
        return
    value: Any = _bias(said) if said.name == "logit_bias" else said.value
    before, source = settings.get(said.name, ([], said.flag))
    earlier = before if source in _LISTS else []
    settings[said.name] = ([*earlier, value], said.flag)


def unknown(name: str) -> str:
    """Why a flag is none."""
    known = [*_NUMBERS, *_TEXTS, *_LISTS, *_SWITCHES]
    return f"it is no flag of llama.cpp that is about the answer{nearest(name, known)}"


def _number(flag: str, text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    except ValueError:
        raise InputError(f"{flag}: a number is expected, found {text!r}") from None


def _bias(said: FlagSaid) -> tuple[int, float | str]:
    found = _BIAS.fullmatch(said.value)
    if not found:
        raise InputError(f"{said.flag}: ID+BIAS or ID-BIAS is expected, found {said.value!r}")
    number = _number(said.flag, found[3])
    if found[2] == "-":
        number = -number
    return int(found[1]), "-inf" if number == float("-inf") else number
