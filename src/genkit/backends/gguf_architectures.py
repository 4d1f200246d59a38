"""Configuration and weights of the architectures that are converted from GGUF.

Only architectures are listed whose conversion a test proves bit for bit. A file that says
anything this module does not understand is refused: a scaling that is passed over in silence, or a
tensor left out, gives a model that talks nonsense.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from genkit.backends.gguf_file import GgufFile
from genkit.errors import ModelLoadError

RopeLayout = Literal["interleaved", "halves"]
"""Which dimensions of a head are rotated together: neighbours, or one of each half. transformers
rotates halves; writers of the `interleaved` kind permute the rows of queries and keys."""

_SKELETON = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
    "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
    "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
    "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
    "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
    "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
}
_QK_NORMS = {
    "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
    "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
}
# Keys that change nothing about the numbers.
_WITHOUT_EFFECT = {"vocab_size", "context_length", "embedding_length", "block_count"}


_TOO_MANY = 1 << 31


@dataclass(frozen=True)
class Architecture:
    """How one kind of GGUF model becomes a model of transformers.

    Attributes:
        model_type, class_name: what transformers calls it.
        names: tensors of the file, without `.weight` and `.bias`, and their names in the model.
        rope_layout: how the file stores queries and keys.
        biases: extra options of the configuration, from the names of the tensors.
    """

    model_type: str
    class_name: str
    names: dict[str, str]
    rope_layout: RopeLayout
    biases: Callable[[frozenset[str]], dict[str, Any]] = lambda names: {}


def _llama_biases(names: frozenset[str]) -> dict[str, Any]:
    return {
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
    }


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _SKELETON, "interleaved", _llama_biases),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", _SKELETON, "halves"),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _SKELETON | _QK_NORMS, "halves"),
}


def architecture_of(file: GgufFile) -> Architecture:
    """The architecture of a file.

    Raises:
        ModelLoadError: it is not among those that are converted.
    """
    try:
        return ARCHITECTURES[file.architecture]
    except KeyError:
        raise ModelLoadError(
            f"{file.path} holds a model of the architecture {file.architecture!r}; from GGUF "
            f"genkit converts {', '.join(sorted(ARCHITECTURES))}. Give the model as a folder"
        ) from None


class ConfigReader:
    """The keys of a file about its architecture; remembers which were asked for."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._prefix = f"{file.architecture}."
        self._asked = set(_WITHOUT_EFFECT)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default.

        Raises:
            ModelLoadError: it is not there, and there is no default.
        """
        self._asked.add(key)
        value = self._file.get(self._prefix + key, default)
        if value is None:
            raise ModelLoadError(f"{self._file.path} does not say {self._prefix + key}")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """The value of a key that counts something, or the default."""
        value = self.get(key, default)
        if type(value) is not int or not (0 < value < _TOO_MANY or value == default):
            raise ModelLoadError(
                f"{self._file.path} says {self._prefix + key} is {value!r:.60}; it must be a whole "
                "number above 0"
            )
        return value

    def refuse_unknown(self) -> None:
        """Refuse a file that says something about its architecture that nobody has asked for."""
        said = {
            key.removeprefix(self._prefix)
            for key in self._file.metadata
            if key.startswith(self._prefix)
        }
        if unknown := sorted(said - self._asked):
            raise ModelLoadError(
                f"{self._file.path} says {', '.join(self._prefix + key for key in unknown)}, which "
                "genkit does not know how to convert. Give the model as a folder instead"
            )


def config_of(file: GgufFile, architecture: Architecture) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        ModelLoadError: the file leaves something out, or says something that is not understood.
    """
    read = ConfigReader(file)
    heads = read.whole("attention.head_count")
    hidden = read.whole("embedding_length")
    head_dim = _head_dim(file, read, hidden // heads)
    config = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": _vocab_size(file),
        "hidden_size": hidden,
        "intermediate_size": read.whole("feed_forward_length"),
        "num_hidden_layers": _num_layers(file, read),
        "num_attention_heads": heads,
        "num_key_value_heads": read.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": _short(read.get("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": read.whole("context_length"),
        "tie_word_embeddings": "output.weight" not in file.shapes,
        **_rope(file, read, head_dim),
        **architecture.biases(frozenset(file.shapes)),
    }
    read.refuse_unknown()
    _check_heads(file, config)
    return config


def _vocab_size(file: GgufFile) -> int:
    shape = file.shapes.get("token_embd.weight", ())
    if len(shape) != 2:
        raise ModelLoadError(f"{file.path} has no token_embd.weight with a row a token")
    return shape[0]


def _num_layers(file: GgufFile, read: ConfigReader) -> int:
    said = read.whole("block_count")
    blocks = (re.match(r"blk\.(\d+)\.", name) for name in file.shapes)
    there = max((int(block[1]) + 1 for block in blocks if block), default=0)
    if said != there:
        raise ModelLoadError(f"{file.path} says it has {said} layers, and has tensors of {there}")
    return said


def _check_heads(file: GgufFile, config: dict[str, Any]) -> None:
    """Refuse numbers of heads that are not those of the tensors: rows would be mixed up."""
    numbers = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, shape in file.shapes.items():
        kind = name.split(".")[2] if name.startswith("blk.") and name.count(".") == 3 else ""
        if kind in numbers and shape[0] != numbers[kind] * config["head_dim"]:
            raise ModelLoadError(
                f"{file.path}: {name} has {shape[0]} rows, which are not {numbers[kind]} heads of "
                f"{config['head_dim']}"
            )
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        raise ModelLoadError(
            f"{file.path}: {config['num_attention_heads']} heads cannot share "
            f"{config['num_key_value_heads']} keys evenly"
        )


def _head_dim(file: GgufFile, read: ConfigReader, usual: int) -> int:
    rotated = read.whole("rope.dimension_count", 0)
    head_dim = read.whole("attention.key_length", rotated or usual)
    value_dim = read.whole("attention.value_length", head_dim)
    if rotated not in (0, head_dim) or value_dim != head_dim:
        raise ModelLoadError(
            f"{file.path}: heads of {head_dim} of which {rotated} are rotated, and values of "
            f"{value_dim}, are not supported. Give the model as a folder instead"
        )
    return head_dim


def _rope(file: GgufFile, read: ConfigReader, head_dim: int) -> dict[str, Any]:
    """The rotary embedding, under the names of transformers 4 and of 5."""
    theta = float(read.get("rope.freq_base", 10000.0))
    kind = str(read.get("rope.scaling.type", "none"))
    factor = float(read.get("rope.scaling.factor", 1.0))
    scaling: dict[str, Any] = {"rope_type": "default"}
    if "rope_freqs.weight" in file.shapes:
        scaling = _llama3_scaling(file, theta, head_dim)
    elif kind == "linear":
        scaling = {"rope_type": "linear", "factor": factor}
    elif kind != "none":
        raise ModelLoadError(
            f"{file.path}: the rope scaling {kind!r} is not supported. Give the model as a folder"
        )
    given = {} if scaling["rope_type"] == "default" else {"rope_scaling": scaling}
    return {"rope_theta": theta, **given, "rope_parameters": {"rope_theta": theta, **scaling}}


def _llama3_scaling(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The settings behind the factors that the file lists, one a pair of dimensions.

    Llama 3.1 and its successors differ in the factor only. Whether the guess is right is computed.
    """
    listed = file.tensor("rope_freqs.weight").float()
    scaling = {
        "rope_type": "llama3",
        "factor": float(listed.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if not torch.allclose(llama3_factors(scaling, theta, head_dim), listed, rtol=1e-4):
        raise ModelLoadError(
            f"{file.path}: its rope_freqs are not those of Llama 3.1. Give the model as a folder"
        )
    return scaling


def llama3_factors(scaling: dict[str, Any], theta: float, head_dim: int) -> torch.Tensor:
    """By what each frequency is divided: 1 for short waves, `factor` for long ones."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    waves = 2 * torch.pi * theta**exponents
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (scaling["original_max_position_embeddings"] / waves - low) / (high - low)
    smooth = smooth.clamp(0, 1)
    factors: torch.Tensor = 1 / (smooth + (1 - smooth) / scaling["factor"])
    return factors.float()


def weights_of(
    file: GgufFile, architecture: Architecture, config: dict[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight under its name in transformers, in the order of the file.

    Raises:
        ModelLoadError: the file has a tensor that is not known.
    """
    for name in file.shapes:
        if name == "rope_freqs.weight":
            continue  # is in the configuration
        tensor = file.tensor(name)
        if architecture.rope_layout == "interleaved":
            tensor = _halves(name, tensor, config)
        yield model_name(name, architecture, file), tensor


def model_name(name: str, architecture: Architecture, file: GgufFile) -> str:
    """What transformers calls a tensor of the file."""
    stem, _, kind = name.rpartition(".")
    block = re.match(r"blk\.(\d+)\.", stem)
    key = re.sub(r"^blk\.\d+\.", "blk.{}.", stem)
    if kind not in ("weight", "bias") or key not in architecture.names:
        raise ModelLoadError(
            f"{file.path} has a tensor {name!r}, which genkit does not know how to convert for "
            f"{file.architecture!r}. Give the model as a folder instead"
        )
    return f"{architecture.names[key].format(block[1] if block else '')}.{kind}"


def _halves(name: str, tensor: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    if ".attn_q." in name:
        return halves_from_interleaved(tensor, config["num_attention_heads"])
    if ".attn_k." in name:
        return halves_from_interleaved(tensor, config["num_key_value_heads"])
    return tensor


def halves_from_interleaved(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo the writer's permutation of the rows of each head, ``[heads * head_dim, ...]``.

    The writer (`LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py) puts row ``d`` of the
    first half and row ``d`` of the second half next to each other.
    """
    pairs = tensor.reshape(num_heads, -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape).contiguous()


def _short(value: Any) -> float:
    """The shortest decimal that is this float32: 1e-05 and not 9.999999747378752e-06."""
    return float(f"{float(value):.7g}")
