"""The flags of llama.cpp's programs, read as the settings of its server."""

from __future__ import annotations

import re

from genkit.recipes.importers.flags import Flags, number

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

_SWITCHES = {
    "--ignore-eos": ("ignore_eos", True),
    "-cnv": ("conversation", True),
    "--conversation": ("conversation", True),
    "-no-cnv": ("conversation", False),
    "--no-conversation": ("conversation", False),
}

_BIAS = re.compile(r"(\d+)([+-])(\S+)")


def _bias(text: str) -> tuple[int, float | str]:
    found = _BIAS.fullmatch(text)
    if not found:
        raise ValueError("ID+BIAS or ID-BIAS is expected")
    size = number(found[3])
    if found[2] == "-":
        size = -size
    return int(found[1]), "-inf" if size == float("-inf") else size


LLAMA_CPP = Flags(
    engine="llama.cpp",
    program="llama",
    numbers=_NUMBERS,
    texts=_TEXTS,
    lists=_LISTS,
    switches=_SWITCHES,
    readers={
        "-l": _bias,
        "--logit-bias": _bias,
        "--grammar-file": lambda path: f"file {path}",
    },
)
