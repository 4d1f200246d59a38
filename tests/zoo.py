"""Tiny random models of many architectures of transformers.

Weights are large (std 0.35): the nearly flat logits of a usual initialisation would hide mistakes
in positions, masks and caches. Heads and key heads are 8 and 2 and `head_dim` is not hidden size by
heads where the architecture lets one choose; windows and chunks are 8 tokens wide, and scaled ropes
go far past their original length.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from genkit.backends import PyTorch


class Architecture(NamedTuple):
    """Names of the classes in transformers, and options of the configuration."""

    config: str
    model: str
    options: dict[str, Any]


VOCAB_SIZE = 97
WINDOW = 8

# --- options that several have -----------------------------------------------------------

_NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_OLD: dict[str, Any] = {"vocab_size": VOCAB_SIZE, **_NO_IDS}
_GPT: dict[str, Any] = {**_OLD, "n_embd": 32, "n_layer": 2, "n_head": 8, "n_positions": 256}
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
_WIDE = {**_USUAL_HEAD_DIM, "hidden_size": 64}
_WINDOW = {"sliding_window": WINDOW}
_MIXED = {
    **_WINDOW,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_SHARING = {  # layers 2 and 3 read the keys of layers 0 and 1
    **_ROPE,
    **_WINDOW,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "hidden_size_per_layer_input": 8,
}
_SCALAR = {"query_pre_attn_scalar": 8}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_NAMED_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_COMPRESSED = {  # keys of 12 and values of 6 numbers a head
    **_USUAL_HEAD_DIM,
    "num_key_value_heads": 8,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_SCALED = {"rope_theta": 10000.0, "factor": 8.0}
_LLAMA3_ROPE = {
    **_SCALED,
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_YARN_ROPE = {**_SCALED, "rope_type": "yarn", "original_max_position_embeddings": 32}
_LINEAR_ROPE = {**_SCALED, "rope_type": "linear"}
_FALCON = {
    **_OLD,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "max_position_embeddings": 256,
}
_BERT = {
    **_OLD,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "is_decoder": True,
    "pad_token_id": 1,
}
_MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
_LINEAR = {"layer_types": ["linear_attention", "full_attention"]}


# --- the architectures, by what they support ---------------------------------------------

# Everything.
FULL: dict[str, Architecture] = {
    name: Architecture(*rest)
    for name, *rest in [
        ("llama", "LlamaConfig", "LlamaForCausalLM", _ROPE),
        ("llama3", "LlamaConfig", "LlamaForCausalLM", {**_ROPE, "rope_parameters": _LLAMA3_ROPE}),
        (
            "llama_yarn",
            "LlamaConfig",
            "LlamaForCausalLM",
            {**_ROPE, "max_position_embeddings": 32, "rope_parameters": _YARN_ROPE},
        ),
        (
            "llama_linear",
            "LlamaConfig",
            "LlamaForCausalLM",
            {**_ROPE, "max_position_embeddings": 32, "rope_parameters": _LINEAR_ROPE},
        ),
        ("mixtral", "MixtralConfig", "MixtralForCausalLM", {**_ROPE, **_EXPERTS}),
        ("qwen2", "Qwen2Config", "Qwen2ForCausalLM", _USUAL_HEAD_DIM),
        ("qwen3", "Qwen3Config", "Qwen3ForCausalLM", _ROPE),
        ("qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**_ROPE, **_NAMED_EXPERTS}),
        ("phi3", "Phi3Config", "Phi3ForCausalLM", _USUAL_HEAD_DIM),
        ("phi", "PhiConfig", "PhiForCausalLM", {**_WIDE, "partial_rotary_factor": 0.5}),
        (
            "stablelm",
            "StableLmConfig",
            "StableLmForCausalLM",
            {**_WIDE, "partial_rotary_factor": 0.25},
        ),
        ("persimmon", "PersimmonConfig", "PersimmonForCausalLM", _WIDE),
        ("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", _WIDE),
        ("gpt2", "GPT2Config", "GPT2LMHeadModel", _GPT),
        ("gptj", "GPTJConfig", "GPTJForCausalLM", {**_GPT, "n_head": 4, "rotary_dim": 4}),
        (
            "codegen",
            "CodeGenConfig",
            "CodeGenForCausalLM",
            {**_GPT, "n_head": 4, "rotary_dim": 4, "n_ctx": 256},
        ),
        ("gpt_bigcode", "GPTBigCodeConfig", "GPTBigCodeForCausalLM", _GPT),  # one key head
        ("ctrl", "CTRLConfig", "CTRLLMHeadModel", {**_GPT, "dff": 48}),
        (
            "opt",
            "OPTConfig",
            "OPTForCausalLM",
            {
                **_OLD,
                "hidden_size": 32,
                "ffn_dim": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "max_position_embeddings": 256,
                "word_embed_proj_dim": 32,
                "pad_token_id": 1,
            },
        ),
        (
            "xglm",
            "XGLMConfig",
            "XGLMForCausalLM",
            {
                **_OLD,
                "d_model": 32,
                "ffn_dim": 48,
                "num_layers": 2,
                "attention_heads": 4,
                "max_position_embeddings": 256,
                "pad_token_id": 1,
            },
        ),
        (
            "biogpt",
            "BioGptConfig",
            "BioGptForCausalLM",
            {**_BERT, "max_position_embeddings": 256},
        ),
        (
            "rembert",
            "RemBertConfig",
            "RemBertForCausalLM",
            {
                **_BERT,
                "max_position_embeddings": 256,
                "input_embedding_size": 16,
                "output_embedding_size": 16,
            },
        ),
        (  # many query heads, two key heads
            "falcon_new",
            "FalconConfig",
            "FalconForCausalLM",
            {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
        ),
        (  # one key head
            "falcon_multi_query",
            "FalconConfig",
            "FalconForCausalLM",
            {**_FALCON, "multi_query": True},
        ),
        ("gemma", "GemmaConfig", "GemmaForCausalLM", _ROPE),
        (
            "granite",
            "GraniteConfig",
            "GraniteForCausalLM",
            {
                **_USUAL_HEAD_DIM,
                "embedding_multiplier": 2.0,
                "residual_multiplier": 0.5,
                "attention_multiplier": 0.3,
            },
        ),
        (
            "granite_moe",
            "GraniteMoeConfig",
            "GraniteMoeForCausalLM",
            {**_USUAL_HEAD_DIM, **_EXPERTS},
        ),
        ("olmo2", "Olmo2Config", "Olmo2ForCausalLM", _USUAL_HEAD_DIM),
        ("olmoe", "OlmoeConfig", "OlmoeForCausalLM", {**_USUAL_HEAD_DIM, **_NAMED_EXPERTS}),
        ("cohere", "CohereConfig", "CohereForCausalLM", {**_USUAL_HEAD_DIM, "logit_scale": 1.0}),
        (  # the second layer has no rope
            "smollm3",
            "SmolLM3Config",
            "SmolLM3ForCausalLM",
            {**_USUAL_HEAD_DIM, "no_rope_layers": [1, 0]},
        ),
        ("glm4", "Glm4Config", "Glm4ForCausalLM", _ROPE),
        ("nemotron", "NemotronConfig", "NemotronForCausalLM", _ROPE),
        ("deepseek_v2", "DeepseekV2Config", "DeepseekV2ForCausalLM", _COMPRESSED),
        ("deepseek_v3", "DeepseekV3Config", "DeepseekV3ForCausalLM", _COMPRESSED),
        ("diffllama", "DiffLlamaConfig", "DiffLlamaForCausalLM", _ROPE),
        (
            "jetmoe",
            "JetMoeConfig",
            "JetMoeForCausalLM",
            {**_USUAL_HEAD_DIM, **_EXPERTS, "kv_channels": 8},
        ),
    ]
}

# Distances are counted in keys, so that none may be left out: windows, chunks and alibi.
COUNTING: dict[str, Architecture] = {
    name: Architecture(*rest)
    for name, *rest in [
        ("mistral", "MistralConfig", "MistralForCausalLM", {**_ROPE, **_WINDOW}),
        (
            "starcoder2",
            "Starcoder2Config",
            "Starcoder2ForCausalLM",
            {**_USUAL_HEAD_DIM, **_WINDOW},
        ),
        ("gemma2", "Gemma2Config", "Gemma2ForCausalLM", {**_ROPE, **_MIXED, **_SCALAR}),
        ("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", {**_ROPE, **_MIXED, **_SCALAR}),
        (
            "gemma3n",
            "Gemma3nTextConfig",
            "Gemma3nForCausalLM",
            {
                **_SHARING,
                "laurel_rank": 4,
                "altup_num_inputs": 2,
                "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
            },
        ),
        ("gemma4", "Gemma4TextConfig", "Gemma4ForCausalLM", {**_SHARING, "global_head_dim": 16}),
        (
            "cohere2",
            "Cohere2Config",
            "Cohere2ForCausalLM",
            {**_USUAL_HEAD_DIM, **_MIXED, "logit_scale": 1.0},
        ),
        ("olmo3", "Olmo3Config", "Olmo3ForCausalLM", {**_USUAL_HEAD_DIM, **_MIXED}),
        ("exaone4", "Exaone4Config", "Exaone4ForCausalLM", {**_ROPE, **_MIXED}),
        (  # attention sinks
            "gpt_oss",
            "GptOssConfig",
            "GptOssForCausalLM",
            {
                **_ROPE,
                **_EXPERTS,
                **_WINDOW,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        (  # a window of tokens that ends with the chunk, in all layers but the last
            "llama4",
            "Llama4TextConfig",
            "Llama4ForCausalLM",
            {
                **_ROPE,
                "num_hidden_layers": 4,
                "attention_chunk_size": WINDOW,
                "no_rope_layers": [1, 1, 1, 0],
                "intermediate_size_mlp": 48,
                "num_local_experts": 2,
                "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 2,
            },
        ),
        (
            "bloom",
            "BloomConfig",
            "BloomForCausalLM",
            {**_OLD, "hidden_size": 32, "n_layer": 2, "n_head": 8},
        ),
        (
            "falcon_alibi",
            "FalconConfig",
            "FalconForCausalLM",
            {**_FALCON, "alibi": True, "multi_query": True},
        ),
    ]
}

# Rows of different lengths cannot run together: nobody tells these models where a row begins.
ONE_LENGTH: dict[str, Architecture] = {
    name: Architecture(*rest)
    for name, *rest in [
        (
            "roberta",
            "RobertaConfig",
            "RobertaForCausalLM",
            {**_BERT, "max_position_embeddings": 40},
        ),
        (
            "roformer",
            "RoFormerConfig",
            "RoFormerForCausalLM",
            {**_BERT, "max_position_embeddings": 40},
        ),
        (
            "gpt_neo",
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
        (
            "mpt",
            "MptConfig",
            "MptForCausalLM",
            {**_OLD, "d_model": 32, "n_layers": 2, "n_heads": 8, "max_seq_len": 40},
        ),
    ]
}

# A state that tokens are folded into, in some layers at least, or keys with an index beside them.
RECURRENT: dict[str, Architecture] = {
    name: Architecture(*rest)
    for name, *rest in [
        (
            "mamba",
            "MambaConfig",
            "MambaForCausalLM",
            {**_OLD, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        ),
        (
            "mamba2",
            "Mamba2Config",
            "Mamba2ForCausalLM",
            {
                **_OLD,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "state_size": 8,
                "num_heads": 8,
                "head_dim": 8,
                "n_groups": 1,
                "chunk_size": 8,
            },
        ),
        (
            "rwkv",
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
        (  # counts positions from 0 in every call that is not told them
            "bamba",
            "BambaConfig",
            "BambaForCausalLM",
            {**_USUAL_HEAD_DIM, **_MAMBA_HEADS, "attn_layer_indices": [1], "mamba_n_groups": 1},
        ),
        (
            "granite_hybrid",
            "GraniteMoeHybridConfig",
            "GraniteMoeHybridForCausalLM",
            {
                **_USUAL_HEAD_DIM,
                **_MAMBA_HEADS,
                "layer_types": ["mamba", "attention"],
                "num_local_experts": 2,
                "shared_intermediate_size": 48,
                "position_embedding_type": "rope",
            },
        ),
        (  # both kinds in every layer
            "falcon_h1",
            "FalconH1Config",
            "FalconH1ForCausalLM",
            {
                **_ROPE,
                **_MAMBA_HEADS,
                "mamba_n_heads": 4,
                "mamba_d_ssm": 32,
                "mamba_n_groups": 1,
            },
        ),
        (
            "jamba",
            "JambaConfig",
            "JambaForCausalLM",
            {
                **_USUAL_HEAD_DIM,
                "num_experts": 2,
                "attn_layer_period": 2,
                "attn_layer_offset": 1,
                "mamba_d_state": 8,
            },
        ),
        (
            "lfm2",
            "Lfm2Config",
            "Lfm2ForCausalLM",
            {**_USUAL_HEAD_DIM, "layer_types": ["conv", "full_attention"]},
        ),
        (
            "minimax",
            "MiniMaxConfig",
            "MiniMaxForCausalLM",
            {**_ROPE, **_LINEAR, "num_local_experts": 2, "block_size": 8},
        ),
        (
            "qwen3_next",
            "Qwen3NextConfig",
            "Qwen3NextForCausalLM",
            {
                **_ROPE,
                **_LINEAR,
                **_NAMED_EXPERTS,
                "linear_key_head_dim": 8,
                "linear_value_head_dim": 8,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "shared_expert_intermediate_size": 24,
            },
        ),
        (  # sees the eight keys that an index likes best; 16 heads, so that it seldom draws
            "deepseek_v32",
            "DeepseekV32Config",
            "DeepseekV32ForCausalLM",
            {**_COMPRESSED, "index_topk": 8, "index_n_heads": 16, "index_head_dim": 8},
        ),
    ]
}

ATTENTION = FULL | COUNTING
ALL = ATTENTION | ONE_LENGTH | RECURRENT


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A transformers model of the zoo with random weights; `changes` go to its configuration."""
    import transformers

    config_class, model_class, options = ALL[name]
    options = {**options, **changes}
    if transformers.__version__.startswith("4.") and "rope_parameters" in options:
        options["rope_scaling"] = options.pop("rope_parameters")
    config = getattr(transformers, config_class)(**options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of what the architecture itself draws, and is left as it is
        module = getattr(transformers, model_class)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in module.named_parameters():
            # What a recurrence multiplies again and again must stay as its authors set it.
            if parameter.dim() > 1 and "A_log" not in parameter_name:
                parameter.normal_(0.0, 0.35, generator=generator)
            elif parameter_name.endswith("sinks"):
                parameter.normal_(0.0, 1.0, generator=generator)
    return module


def shared(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A wrapped model of the zoo on the CPU that tests share and do not change."""
    return _shared(name, dtype)


@functools.cache  # of every way to give the same arguments
def _shared(name: str, dtype: torch.dtype) -> Any:
    # The grouped products of experts are not there for float64.
    changes = {"experts_implementation": "eager"} if dtype == torch.float64 else {}
    return PyTorch.wrap(build(name, **changes).to(dtype))


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    """Random ids."""
    generator = torch.Generator().manual_seed(1000 * seed + num_tokens)
    return torch.randint(2, VOCAB_SIZE, (num_tokens,), generator=generator).tolist()
