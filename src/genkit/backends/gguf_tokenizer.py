"""Builds the tokenizer that a GGUF file describes, as the files transformers reads.

The file lists tokens, their types, merges or scores, and a name for how text is split first. It
does not say what is behind that name, so only names with a known meaning are taken: a wrong split
gives ids that the model has never seen together, and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from genkit.backends.gguf_file import GgufFile
from genkit.errors import ModelLoadError

_CONTROL, _USER_DEFINED = 3, 4  # token types

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPACE = "\u2581"


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_SPLITS: dict[str, Callable[[], Any]] = {
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "command-r": _single_digits,
    "llama3": lambda: _split(_LLAMA3),
    "llama-v3": lambda: _split(_LLAMA3),
    "llama-bpe": lambda: _split(_LLAMA3),
    "qwen2": lambda: _split(_QWEN2),
    "deepseek-r1-qwen": lambda: _split(_QWEN2),
}
_KEEPS_WHOLE_WORDS = {"llama3", "llama-v3", "llama-bpe"}  # a word in the vocabulary is not merged


def build_tokenizer(file: GgufFile) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer, and the content of tokenizer_config.json.

    Raises:
        ModelLoadError: the file has none, or one of a kind that is not known.
    """
    kind = file.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        raise ModelLoadError(
            f"{file.path} has a tokenizer of the kind {kind!r}; known: {', '.join(builders)}. Give "
            "the model as a folder instead"
        )
    try:
        tokenizer = builders[kind](file)
        _add_tokens(tokenizer, file)
        _add_begin_and_end(tokenizer, file)
        return tokenizer, _settings(file)
    except ModelLoadError:
        raise
    except Exception as error:  # such as a merge of tokens that are not there
        raise ModelLoadError(f"{file.path}: its tokenizer cannot be built: {error}") from error


def end_token_ids(file: GgufFile) -> list[int]:
    """Every id that the file says ends a text or a turn."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [file.get(f"tokenizer.ggml.{key}") for key in keys]
    return sorted({int(i) for i in ids if i is not None})


def _byte_level(file: GgufFile) -> Tokenizer:
    split = file.get("tokenizer.ggml.pre")
    if split not in _SPLITS:
        raise ModelLoadError(
            f"{file.path} splits text in the way {split!r}, which is not known; known: "
            f"{', '.join(_SPLITS)}. Give the model as a folder instead"
        )
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_vocabulary(file),
            merges=[_pair(file, merge) for merge in file.get("tokenizer.ggml.merges", [])],
            ignore_merges=split in _KEEPS_WHOLE_WORDS,
        )
    )
    if "qwen" in split:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _SPLITS[split]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(file: GgufFile, merge: str) -> tuple[str, str]:
    left, blank, right = merge.partition(" ")
    if not blank or " " in right:
        raise ModelLoadError(f"{file.path}: the merge {merge!r} is no pair of tokens")
    return left, right


def _sentencepiece(file: GgufFile) -> Tokenizer:
    vocabulary = _vocabulary(file)
    scores = file.get("tokenizer.ggml.scores") or []
    if len(scores) != len(vocabulary):
        raise ModelLoadError(f"{file.path}: its tokenizer has no score for every token")
    unknown = file.get("tokenizer.ggml.unknown_token_id", 0)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=list(merges_from_scores(vocabulary, scores)),
            unk_token=file.get("tokenizer.ggml.tokens")[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = bool(file.get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    )
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def merges_from_scores(
    vocabulary: dict[str, int], scores: list[float]
) -> Iterator[tuple[str, str]]:
    """The merges that do what sentencepiece does: of all pairs, join that of the best token."""
    found = []
    for token, index in vocabulary.items():
        for i in range(1, len(token)):
            left, right = token[:i], token[i:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[index], index, vocabulary[left], left, right))
    return ((left, right) for *_, left, right in sorted(found))


def _vocabulary(file: GgufFile) -> dict[str, int]:
    tokens = file.get("tokenizer.ggml.tokens") or []
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if not tokens or len(vocabulary) != len(tokens):
        raise ModelLoadError(f"{file.path}: its tokenizer has no tokens, or some of them twice")
    return vocabulary


def _add_tokens(tokenizer: Tokenizer, file: GgufFile) -> None:
    """Tokens that are found in text as a whole: control tokens, and those that users have added."""
    types = file.get("tokenizer.ggml.token_type") or []
    typed = list(zip(file.get("tokenizer.ggml.tokens"), types, strict=False))
    control = [AddedToken(t, normalized=False, special=True) for t, k in typed if k == _CONTROL]
    added = [AddedToken(t, normalized=False) for t, k in typed if k == _USER_DEFINED]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(added)


def _add_begin_and_end(tokenizer: Tokenizer, file: GgufFile) -> None:
    is_sentencepiece = file.get("tokenizer.ggml.model") == "llama"
    begins = bool(file.get("tokenizer.ggml.add_bos_token", is_sentencepiece))
    ends = bool(file.get("tokenizer.ggml.add_eos_token", False))
    bos, eos = _named(file, "bos_token_id"), _named(file, "eos_token_id")
    around = [bos if begins and bos else None, "$A", eos if ends and eos else None]
    special = [token for token in (around[0], around[2]) if token]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(token for token in around if token),
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in special],
    )


def _named(file: GgufFile, key: str) -> str | None:
    index = file.get(f"tokenizer.ggml.{key}")
    return None if index is None else str(file.get("tokenizer.ggml.tokens")[index])


def _settings(file: GgufFile) -> dict[str, Any]:
    settings = {
        # The class that takes tokenizer.json as it is, under the name that 4.57 and 5.x know.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": _named(file, "bos_token_id"),
        "eos_token": _named(file, "eos_token_id"),
        "unk_token": _named(file, "unknown_token_id"),
        "pad_token": _named(file, "padding_token_id"),
        "chat_template": file.get("tokenizer.chat_template"),
    }
    return {key: value for key, value in settings.items() if value is not None}
