"""Tiny random models of many architectures, and what tests do with them.

Weights are large (std 0.35): the nearly flat logits of a usual initialisation would hide mistakes
in positions, masks and caches. Heads and key heads are 8 and 2, and `head_dim` is not hidden size
by heads where the architecture lets one choose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from genkit.backends import PyTorch
from genkit.core.loop import autoregressive
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState

VOCAB_SIZE = 97
_NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_OLD: dict[str, Any] = {"vocab_size": VOCAB_SIZE, **_NO_IDS}
_ROPE: dict[str, Any] = {
    **_OLD,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}
_USUAL_HEAD_DIM = {key: value for key, value in _ROPE.items() if key != "head_dim"}
_MIXED = {
    **_ROPE,
    "sliding_window": 8,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "query_pre_attn_scalar": 8,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_NEOX = {**_OLD, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
_OPT = {**_OLD, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "pad_token_id": 1}
_FALCON = {**_OLD, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8}

ATTENTION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _ROPE),
    "llama3": ("LlamaConfig", "LlamaForCausalLM", {**_ROPE, "rope_parameters": _LLAMA3_ROPE}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_ROPE, "sliding_window": 8}),
    "mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {**_ROPE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _USUAL_HEAD_DIM),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", _ROPE),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", _MIXED),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", _MIXED),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", _USUAL_HEAD_DIM),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {**_NEOX, "num_attention_heads": 8, "max_position_embeddings": 256},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {**_OLD, "n_embd": 32, "n_layer": 2, "n_head": 8, "n_positions": 256},
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {
            **_OPT,
            "num_attention_heads": 8,
            "max_position_embeddings": 256,
            "word_embed_proj_dim": 32,
        },
    ),
    "bloom": (
        "BloomConfig",
        "BloomForCausalLM",
        {**_OLD, "hidden_size": 32, "n_layer": 2, "n_head": 8},
    ),
    "falcon_alibi": (
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "alibi": True, "new_decoder_architecture": False, "multi_query": True},
    ),
}
_DECODER = {
    **_OLD,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "is_decoder": True,
    "pad_token_id": 1,
}
# Alike, but rows of different lengths cannot run together.
ONE_LENGTH: dict[str, tuple[str, str, dict[str, Any]]] = {
    "roberta": ("RobertaConfig", "RobertaForCausalLM", _DECODER),
    "gpt_neo": (
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            **_OLD,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 6,
            "max_position_embeddings": 40,
        },
    ),
    "mpt": (
        "MptConfig",
        "MptForCausalLM",
        {**_OLD, "d_model": 32, "n_layers": 2, "n_heads": 8, "max_seq_len": 40},
    ),
}
RECURRENT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mamba": (
        "MambaConfig",
        "MambaForCausalLM",
        {**_OLD, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    ),
    "rwkv": (
        "RwkvConfig",
        "RwkvForCausalLM",
        {
            **_OLD,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "context_length": 256,
            "intermediate_size": 48,
        },
    ),
    "bamba": (  # counts positions from 0 in every call that is not told them
        "BambaConfig",
        "BambaForCausalLM",
        {
            **_USUAL_HEAD_DIM,
            "attn_layer_indices": [1],
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 1,
            "mamba_d_state": 8,
            "mamba_chunk_size": 8,
        },
    ),
    "lfm2": (
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {**_USUAL_HEAD_DIM, "layer_types": ["conv", "full_attention"]},
    ),
}


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A transformers model of the zoo with random weights; `changes` go to its configuration."""
    import transformers

    config_class, model_class, options = (ATTENTION | ONE_LENGTH | RECURRENT)[name]
    config = getattr(transformers, config_class)(**{**options, **changes})
    module = getattr(transformers, model_class)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in module.named_parameters():
            # What a recurrence multiplies again and again must stay as its authors set it.
            if parameter.dim() > 1 and "A_log" not in parameter_name:
                parameter.normal_(0.0, 0.35, generator=generator)
    return module


@functools.cache
def shared(name: str) -> Any:
    """A wrapped model of the zoo on the CPU that tests share and do not change."""
    return PyTorch.wrap(build(name))


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    """Random ids."""
    generator = torch.Generator().manual_seed(1000 * seed + num_tokens)
    return torch.randint(2, VOCAB_SIZE, (num_tokens,), generator=generator).tolist()


def state_of(model: Any, prompts: Sequence[Sequence[int]], room: int = 64) -> GenerationState:
    """A state with `room` columns beyond the longest prompt."""
    limits = [len(ids) + room for ids in prompts]
    rng = RowRandom([0] * len(prompts), [0] * len(prompts))
    return GenerationState(prompts, limits, rng, device=model.device)


def logits_along(
    model: Any, prompts: Sequence[Sequence[int]], follow: torch.Tensor, cached: bool = True
) -> torch.Tensor:
    """Logits at each step while the tokens `follow` [batch, steps] are appended one by one."""
    state = state_of(model, prompts)
    cache = model.new_cache(state)
    steps = []
    for column in follow.T.to(model.device):
        if not cached:
            cache = model.new_cache(state)
        steps.append(model(state.token_ids[:, cache.length :], cache))
        state.append(column)
    return torch.stack(steps, dim=1).cpu()


class Plain:
    """The simplest cache manager."""

    def acquire(self, model: Any, state: GenerationState) -> Any:
        return model.new_cache(state)

    def release(self, cache: Any, state: GenerationState) -> None:
        pass


class Forgetful:
    """A manager whose cache wraps the model's and ignores `advance`: nothing is ever kept."""

    def acquire(self, model: Any, state: GenerationState) -> Any:
        return _Ignoring(model.new_cache(state))

    def release(self, cache: Any, state: GenerationState) -> None:
        pass


class _Ignoring:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def advance(self, n: int) -> None:
        pass


class _Limit:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        return state.num_generated >= self.limit


def greedy(
    model: Any, prompts: Sequence[Sequence[int]], steps: int, manager: Any = None
) -> list[list[int]]:
    """The tokens that the loop chooses, row by row."""
    state = state_of(model, prompts, room=steps)
    rows: list[list[int]] = [[] for _ in prompts]
    for step in autoregressive(
        model, manager or Plain(), [], lambda _, x: x.argmax(-1), [_Limit(steps)], state
    ):
        for row, token_id in zip(step.rows.tolist(), step.next_ids.tolist(), strict=True):
            rows[row].append(token_id)
    return rows


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    """The functions above, for tests."""
    return SimpleNamespace(
        ATTENTION=ATTENTION,
        build=build,
        shared=shared,
        prompt=prompt,
        state_of=state_of,
        logits_along=logits_along,
        greedy=greedy,
        Plain=Plain,
        Forgetful=Forgetful,
        VOCAB_SIZE=VOCAB_SIZE,
    )


@pytest.fixture(params=list(ATTENTION))
def attention(request: pytest.FixtureRequest) -> Any:
    """A model of each architecture that keeps keys and values."""
    return shared(request.param)


@pytest.fixture(params=list(RECURRENT))
def recurrent(request: pytest.FixtureRequest) -> Any:
    """A model of each architecture that keeps a state, or a state besides keys."""
    return shared(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device"
))])  # fmt: skip
def device(request: pytest.FixtureRequest) -> str:
    """Every device there is."""
    return str(request.param)


@pytest.fixture
def genkit_home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty GENKIT_HOME."""
    path = tmp_path / "home"
    monkeypatch.setenv("GENKIT_HOME", str(path))
    return path


@pytest.fixture
def save_folder(tmp_path: Any) -> Callable[..., Any]:
    """Saves a model of the zoo, with a byte-level tokenizer unless told otherwise."""

    def save(name: str = "llama", *, tokenizer: bool = True, **changes: Any) -> Any:
        folder = tmp_path / f"{name}-folder"
        build(name, **changes).save_pretrained(folder)
        if tokenizer:
            byte_level_tokenizer().save_pretrained(folder)
        return folder

    return save


def byte_level_tokenizer() -> Any:
    """A tokenizer of the bytes that fit into the zoo's vocabulary."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCAB_SIZE - 1]
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<end>", clean_up_tokenization_spaces=False
    )
