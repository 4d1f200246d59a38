"""Reads model and tokenizer from a local folder, and says in plain words what is wrong with it."""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import torch
import transformers

from genkit.backends.gguf import is_converted
from genkit.backends.json_files import read_json
from genkit.backends.model_facts import refuse_encoder_decoder
from genkit.backends.transformers_compat import quiet
from genkit.errors import MissingPackageError, ModelLoadError
from genkit.text.huggingface import HuggingFaceTokenizer

if TYPE_CHECKING:
    from genkit.backends.pytorch import PyTorch

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
    "*.tiktoken",
    "spiece.model",
    "sentencepiece.bpe.model",
)


def load_model(folder: Path, config: Any, spec: PyTorch, device: torch.device) -> Any:
    """The model of a folder, in evaluation mode on `device`.

    Args:
        folder: where the weights are.
        config: from `read_config`.
        spec, device: how they are to be loaded.

    Raises:
        ModelLoadError: an architecture that is unknown or no causal model, damaged or incomplete
            weights, no memory for them.
    """
    check_attention(spec)
    check_readable(folder, config)
    try:
        with quiet():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype="auto" if spec.dtype == "auto" else getattr(torch, spec.dtype),
                attn_implementation=spec.attention,
                trust_remote_code=spec.trust_remote_code,
                use_safetensors=None if spec.allow_pickle else True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, by name
            )
    except Exception as error:
        raise ModelLoadError(f"{folder}: {_first_lines(error)}") from error
    module, report = loaded
    refuse_incomplete(folder, report)
    refuse_left_over(folder, module, report)
    warn_of_untied_head(folder, module)
    try:
        return module.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"{folder}: the model does not fit on {device}; use a smaller `dtype` or another "
            f"`device` ({_first_lines(error)})"
        ) from error


def read_config(folder: Path, spec: PyTorch) -> Any:
    """The configuration of a folder that also has weights. None of its code runs.

    Raises:
        ModelLoadError: there is none, it cannot be read, it needs code that is not trusted, or
            there are no weights, or only pickled ones.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelLoadError(f"{folder} is no model folder: it has no config.json")
    refuse_code(folder, read_json(path), spec)
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(
                folder, trust_remote_code=spec.trust_remote_code, local_files_only=True
            )
    except Exception as error:
        raise ModelLoadError(f"{path}: {_first_lines(error)}") from error
    refuse_encoder_decoder(config, str(folder))
    num_layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    if isinstance(num_layers, int) and num_layers < 1:
        raise ModelLoadError(f"{path}: a model of {num_layers} layers computes nothing")
    check_weights(folder, spec)
    return config


def check_attention(spec: PyTorch) -> None:
    """Refuse an attention implementation whose package is not installed."""
    if spec.attention == "flash_attention_2" and find_spec("flash_attn") is None:
        raise MissingPackageError(
            "flash-attn",
            "pip install flash-attn, on a machine with CUDA; or leave `attention` out",
            "attention: flash_attention_2",
        )


def check_readable(folder: Path, config: Any) -> None:
    """Refuse a weights file that is cut short, no safetensors, or quantised in an unknown way."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safetensors.safe_open(path, framework="pt") as file:  # checks the size, too
                names = [name for name in file.keys() if name.endswith(".weight")]  # noqa: SIM118
                dtypes = {name: file.get_slice(name).get_dtype() for name in names}
        except Exception as error:
            raise ModelLoadError(
                f"{path} is damaged or cut short ({_first_lines(error)}); fetch it again"
            ) from error
        coded = [name for name, dtype in dtypes.items() if dtype in ("I8", "U8")]
        if coded and getattr(config, "quantization_config", None) is None:
            raise ModelLoadError(
                f"{path}: {coded[0]} is stored as {dtypes[coded[0]]}, and config.json has no "
                "quantization_config that says what the numbers stand for"
            )


def refuse_code(folder: Path, config: dict[str, Any], spec: PyTorch) -> None:
    """Refuse a model that transformers does not know itself and that brings its own code."""
    known = config.get("model_type") in transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if "auto_map" in config and not known and not spec.trust_remote_code:
        raise ModelLoadError(
            f"{folder} needs Python code that it brings along; genkit runs none of it unless the "
            "recipe says `trust_remote_code: true`. Read that code first"
        )


def check_weights(folder: Path, spec: PyTorch) -> None:
    """Refuse a folder without weights that may be read.

    Raises:
        ModelLoadError: there are none, or only pickled ones.
    """
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if not pickles:
        raise ModelLoadError(
            f"{folder} has no weights: no *.safetensors file is there; put them beside config.json"
        )
    if not spec.allow_pickle:
        raise ModelLoadError(
            f"{folder} has pickled weights only ({', '.join(pickles[:3])}), and reading a pickle "
            "can run any code. Convert them to safetensors, or say `allow_pickle: true` if you "
            "trust where they come from"
        )


def refuse_incomplete(folder: Path, report: dict[str, Any]) -> None:
    """Refuse weights that leave parts of the model at random."""
    missing = sorted(report.get("missing_keys") or ())
    mismatched = sorted(
        f"{name} ({list(stored)} instead of {list(expected)})"
        for name, stored, expected in report.get("mismatched_keys") or ()
    )
    other = "have other shapes than config.json says"
    for what, names in (("are missing", missing), (other, mismatched)):
        if names:
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise ModelLoadError(f"{folder}: {len(names)} weights {what}: {shown}")


_LAYER = re.compile(r"((?:.*\.)?(?:layers?|h|blocks?)\.)(\d+)\.")


def refuse_left_over(folder: Path, module: Any, report: dict[str, Any]) -> None:
    """Refuse weights of layers that the model does not have; warn about others it leaves unused."""
    unused = sorted(report.get("unexpected_keys") or ())
    if not unused:
        return
    num_layers = getattr(module.config.get_text_config(decoder=True), "num_hidden_layers", None)
    own = {match[1] for name in module.state_dict() if (match := _LAYER.match(name))}
    for name in unused:
        match = _LAYER.match(name)
        if match and num_layers and int(match[2]) >= num_layers and _is_among(match[1], own):
            raise ModelLoadError(
                f"{folder} has weights of layers beyond the {num_layers} that config.json says, "
                f"such as {name}"
            )
    shown = ", ".join(unused[:3]) + (", ..." if len(unused) > 3 else "")
    warnings.warn(f"{folder}: the model does not use {len(unused)} weights: {shown}", stacklevel=2)


def warn_of_untied_head(folder: Path, module: Any) -> None:
    """Warn where config.json ties the head to the embeddings and the weights have another one."""
    config = module.config.get_text_config(decoder=True)
    head, embeddings = module.get_output_embeddings(), module.get_input_embeddings()
    if not getattr(config, "tie_word_embeddings", False) or head is None or embeddings is None:
        return
    if head.weight is not embeddings.weight and not torch.equal(head.weight, embeddings.weight):
        warnings.warn(
            f"{folder}: config.json ties the head to the embeddings, and the weights have a head "
            "that differs; what is stored is used",
            stacklevel=2,
        )


def _is_among(prefix: str, own: set[str]) -> bool:
    """Whether a prefix is one of those, apart from names of outer modules on either side."""
    given = f".{prefix}"
    return any(given.endswith(f".{one}") or f".{one}".endswith(given) for one in own)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has the files of a tokenizer."""
    return any(path for pattern in _TOKENIZER_FILES for path in folder.glob(pattern))


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> HuggingFaceTokenizer:
    """The tokenizer of a folder.

    Raises:
        ModelLoadError: there is none, or it cannot be read.
    """
    if not has_tokenizer(folder):
        raise ModelLoadError(
            f"{folder} has no tokenizer (tokenizer.json or the like); name another one with "
            "`tokenizer:`, or wrap the loaded model with `backends.PyTorch.wrap`"
        )
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and not trust_remote_code:
        _refuse_tokenizer_code(folder, read_json(settings))
    # AutoTokenizer replaces what some architectures' files say by a class of the library, which is
    # a repair for files of the hub and would undo what the converter took from the GGUF.
    auto: Any = transformers.AutoTokenizer
    loader = transformers.PreTrainedTokenizerFast if is_converted(folder) else auto
    try:
        with quiet():
            inner = loader.from_pretrained(
                folder, trust_remote_code=trust_remote_code, local_files_only=True
            )
    except Exception as error:
        raise ModelLoadError(f"{folder}: the tokenizer: {_first_lines(error)}") from error
    return HuggingFaceTokenizer(inner)


def _refuse_tokenizer_code(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse a tokenizer whose class is neither the library's nor replaceable by tokenizer.json."""
    name = str(settings.get("tokenizer_class"))
    if "auto_map" in settings and not hasattr(transformers, name):
        raise ModelLoadError(
            f"the tokenizer of {folder} needs Python code that it brings along; genkit runs none "
            "of it unless the recipe says `trust_remote_code: true`. Read that code first"
        )


def _first_lines(error: Exception, limit: int = 300) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " ..."
