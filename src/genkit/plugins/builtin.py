"""The parts that come with genkit, registered like those of any plugin."""

from __future__ import annotations

from genkit.plugins.hookspecs import hookimpl
from genkit.plugins.lazy import Lazy, lazy

_PROCESSORS = "genkit.components.processors"
_SAMPLERS = "genkit.components.samplers"
_STOPPING = "genkit.components.stopping"
_CACHES = "genkit.components.caches"
_CONTEXTS = "genkit.components.contexts"
_EXPORTERS = "genkit.exporters"


@hookimpl
def genkit_register_backends() -> list[Lazy]:
    """What yields a model."""
    return [
        lazy("pytorch", "genkit.backends.pytorch:PyTorch", "A causal model of transformers."),
        lazy(
            "onnxruntime",
            "genkit.backends.onnxruntime_:OnnxRuntime",
            "An exported graph, run by ONNX Runtime.",
        ),
    ]


@hookimpl
def genkit_register_contexts() -> list[Lazy]:
    """What turns a prompt into ids."""
    return [
        lazy("text", f"{_CONTEXTS}:Text", "The prompt as it is."),
        lazy("chat", f"{_CONTEXTS}:Chat", "A conversation in the model's own chat template."),
    ]


@hookimpl
def genkit_register_cache_managers() -> list[Lazy]:
    """What hands out the memory of a run."""
    return [
        lazy("none", f"{_CACHES}:NoCache", "No memory: every step computes the whole text anew."),
        lazy("dynamic", f"{_CACHES}:Dynamic", "The model's own cache, which grows as it is used."),
        lazy("static", f"{_CACHES}:Static", "The model's own cache, allocated once."),
        lazy(
            "prefix", f"{_CACHES}:Prefix", "Reuses what prompts have in common with earlier runs."
        ),
        lazy(
            "sink_window",
            f"{_CACHES}:SinkWindow",
            "The first tokens and the latest ones; what lies between is forgotten (lossy).",
        ),
        lazy(
            "quantized",
            f"{_CACHES}:Quantized",
            "Keys and values rounded to 8 or 4 bits between steps, to save memory (lossy).",
        ),
    ]


@hookimpl
def genkit_register_decoders() -> list[Lazy]:
    """The loops."""
    return [
        lazy(
            "autoregressive",
            "genkit.decoders.autoregressive:Autoregressive",
            "One token after the other.",
        ),
    ]


@hookimpl
def genkit_register_logits_processors() -> list[Lazy]:
    """What changes the distribution of the next token."""
    return [
        lazy(
            "temperature",
            f"{_PROCESSORS}.temperature:Temperature",
            "Flattens the distribution, or sharpens it.",
        ),
        lazy("top_k", f"{_PROCESSORS}.top_k:TopK", "Keeps the k most probable tokens."),
        lazy(
            "top_p",
            f"{_PROCESSORS}.top_p:TopP",
            "Keeps the most probable tokens that together reach the mass p.",
        ),
        lazy(
            "min_p",
            f"{_PROCESSORS}.min_p:MinP",
            "Keeps tokens at least p times as probable as the most probable one.",
        ),
        lazy(
            "repetition_penalty",
            f"{_PROCESSORS}.repetition_penalty:RepetitionPenalty",
            "Makes tokens less probable that have occurred before.",
        ),
    ]


@hookimpl
def genkit_register_samplers() -> list[Lazy]:
    """What chooses the next token."""
    return [
        lazy("greedy", f"{_SAMPLERS}:Greedy", "Takes the most probable token."),
        lazy("categorical", f"{_SAMPLERS}:Categorical", "Draws from the distribution."),
    ]


@hookimpl
def genkit_register_stop_criteria() -> list[Lazy]:
    """What ends a text."""
    return [
        lazy("eos", f"{_STOPPING}:Eos", "The model's own end tokens."),
        lazy("stop_token_ids", f"{_STOPPING}:StopTokenIds", "Certain token ids."),
        lazy("stop_strings", f"{_STOPPING}:StopStrings", "Certain strings in the text."),
        lazy("max_new_tokens", f"{_STOPPING}:MaxNewTokens", "A number of generated tokens."),
        lazy("max_length", f"{_STOPPING}:MaxLength", "A number of tokens, the prompt included."),
        lazy("time_limit", f"{_STOPPING}:TimeLimit", "A time."),
    ]


@hookimpl
def genkit_register_exporters() -> list[Lazy]:
    """What writes a model as a graph."""
    return [
        lazy(
            "genai",
            f"{_EXPORTERS}.genai:GenAI",
            "The model builder of onnxruntime-genai: quick, fast graphs; common architectures.",
        ),
        lazy(
            "transformers",
            f"{_EXPORTERS}.transformers_:Transformers",
            "The exporter of transformers 5.x; most architectures.",
        ),
        lazy(
            "optimum",
            f"{_EXPORTERS}.optimum_:Optimum",
            "The exporter of optimum-onnx, which needs transformers 4.57.",
        ),
    ]
