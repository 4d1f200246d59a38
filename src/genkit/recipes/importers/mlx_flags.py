"""The flags of mlx-lm's program `mlx_lm.generate`, read as the settings of its functions."""

from __future__ import annotations

from genkit.recipes.importers.flags import Flags

MLX = Flags(
    engine="mlx",
    program="mlx_lm",
    numbers={
        "--temp": "temp",
        "--top-p": "top_p",
        "--min-p": "min_p",
        "--top-k": "top_k",
        "--min-tokens-to-keep": "min_tokens_to_keep",
        "--xtc-probability": "xtc_probability",
        "--xtc-threshold": "xtc_threshold",
        "-m": "max_tokens",
        "--max-tokens": "max_tokens",
        "--seed": "seed",
        "--max-kv-size": "max_kv_size",
        "--kv-bits": "kv_bits",
        "--kv-group-size": "kv_group_size",
        "--quantized-kv-start": "quantized_kv_start",
        "--prefill-step-size": "prefill_step_size",
        "--num-draft-tokens": "num_draft_tokens",
    },
    texts={
        "--model": "model",
        "-p": "prompt",
        "--prompt": "prompt",
        "--system-prompt": "system_prompt",
        "--prefill-response": "prefill_response",
        "--extra-eos-token": "extra_eos_token",
        "--chat-template-config": "chat_template_config",
        "--prompt-cache-file": "prompt_cache_file",
        "--adapter-path": "adapter_path",
        "--draft-model": "draft_model",
        "--verbose": "verbose",
    },
    switches={
        "--ignore-chat-template": ("ignore_chat_template", True),
        "--use-default-chat-template": ("use_default_chat_template", True),
        "--trust-remote-code": ("trust_remote_code", True),
        "-qa": ("quantize_activations", True),
        "--quantize-activations": ("quantize_activations", True),
    },
    defaults={"max_tokens": 100, "ignore_chat_template": False},
)
