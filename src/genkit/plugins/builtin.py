"""The parts that come with genkit, registered like those of any plugin."""

from __future__ import annotations

from genkit.plugins.hookspecs import hookimpl
from genkit.plugins.lazy_part import Lazy, lazy

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
            "dynamic_temperature",
            f"{_PROCESSORS}.dynamic_temperature:DynamicTemperature",
            "A temperature that rises with the entropy of the distribution.",
        ),
        lazy(
            "typical_p",
            f"{_PROCESSORS}.typical_p:TypicalP",
            "Keeps the tokens that are about as surprising as is to be expected.",
        ),
        lazy(
            "epsilon",
            f"{_PROCESSORS}.epsilon:Epsilon",
            "Keeps tokens whose probability is at least epsilon.",
        ),
        lazy(
            "eta",
            f"{_PROCESSORS}.eta:Eta",
            "Keeps tokens above a probability that falls as the entropy rises.",
        ),
        lazy(
            "top_h",
            f"{_PROCESSORS}.top_h:TopH",
            "Keeps the most probable tokens that hold a share of the entropy.",
        ),
        lazy(
            "top_n_sigma",
            f"{_PROCESSORS}.top_n_sigma:TopNSigma",
            "Keeps logits within n standard deviations of the largest.",
        ),
        lazy(
            "xtc",
            f"{_PROCESSORS}.xtc:Xtc",
            "Now and then excludes the top choices but the least of them.",
        ),
        lazy(
            "tail_free",
            f"{_PROCESSORS}.tail_free:TailFree",
            "Cuts the tail off where the probabilities stop bending.",
        ),
        lazy(
            "top_a",
            f"{_PROCESSORS}.top_a:TopA",
            "Keeps tokens above a share of the square of the largest probability.",
        ),
        lazy(
            "smoothing",
            f"{_PROCESSORS}.smoothing:Smoothing",
            "Bends the logits: the best together, the others away.",
        ),
        lazy(
            "renormalize",
            f"{_PROCESSORS}.renormalize:Renormalize",
            "Turns logits into log-probabilities.",
        ),
        lazy(
            "remove_invalid",
            f"{_PROCESSORS}.remove_invalid:RemoveInvalid",
            "Replaces NaN and +inf by numbers.",
        ),
        lazy(
            "repetition_penalty",
            f"{_PROCESSORS}.repetition_penalty:RepetitionPenalty",
            "Makes tokens less probable that have occurred before.",
        ),
        lazy(
            "presence_penalty",
            f"{_PROCESSORS}.presence_penalty:PresencePenalty",
            "Takes a fixed amount from tokens that have occurred before.",
        ),
        lazy(
            "frequency_penalty",
            f"{_PROCESSORS}.frequency_penalty:FrequencyPenalty",
            "Takes an amount from tokens for each time that they have occurred.",
        ),
        lazy(
            "prompt_repetition_penalty",
            f"{_PROCESSORS}.prompt_repetition_penalty:PromptRepetitionPenalty",
            "Makes tokens of the prompt more probable.",
        ),
        lazy(
            "no_repeat_ngram",
            f"{_PROCESSORS}.no_repeat_ngram:NoRepeatNGram",
            "Forbids tokens that would repeat a sequence of n tokens.",
        ),
        lazy(
            "prompt_no_repeat_ngram",
            f"{_PROCESSORS}.prompt_no_repeat_ngram:PromptNoRepeatNGram",
            "Forbids tokens that would repeat a sequence of n tokens of the prompt.",
        ),
        lazy(
            "dry",
            f"{_PROCESSORS}.dry:Dry",
            "Makes tokens less probable that would continue a repetition.",
        ),
        lazy(
            "allowed_tokens",
            f"{_PROCESSORS}.allowed_tokens:AllowedTokens",
            "Forbids all tokens but the listed ones.",
        ),
        lazy(
            "bad_words",
            f"{_PROCESSORS}.bad_words:BadWords",
            "Forbids tokens that would complete a listed word.",
        ),
        lazy(
            "begin_suppress_tokens",
            f"{_PROCESSORS}.begin_suppress_tokens:BeginSuppressTokens",
            "Forbids the listed tokens at the beginning of an answer.",
        ),
        lazy(
            "forced_bos",
            f"{_PROCESSORS}.forced_bos:ForcedBos",
            "Begins every answer with a given token.",
        ),
        lazy(
            "forced_eos",
            f"{_PROCESSORS}.forced_eos:ForcedEos",
            "Puts an end token in the last place that is left.",
        ),
        lazy(
            "length_decay",
            f"{_PROCESSORS}.length_decay:LengthDecay",
            "Makes the end more probable the longer an answer is.",
        ),
        lazy(
            "min_length",
            f"{_PROCESSORS}.min_length:MinLength",
            "Forbids the end before a number of tokens, prompt included.",
        ),
        lazy(
            "min_new_tokens",
            f"{_PROCESSORS}.min_new_tokens:MinNewTokens",
            "Forbids the end before a number of generated tokens.",
        ),
        lazy(
            "prefix_allowed_tokens",
            f"{_PROCESSORS}.prefix_allowed_tokens:PrefixAllowedTokens",
            "Asks a function which tokens are allowed next.",
        ),
        lazy(
            "sequence_bias",
            f"{_PROCESSORS}.sequence_bias:SequenceBias",
            "Adds a number to tokens that would complete a sequence.",
        ),
        lazy(
            "suppress_tokens",
            f"{_PROCESSORS}.suppress_tokens:SuppressTokens",
            "Forbids the listed tokens.",
        ),
        lazy(
            "token_bias",
            f"{_PROCESSORS}.token_bias:TokenBias",
            "Adds a number to the logits of the listed tokens.",
        ),
        lazy(
            "watermark",
            f"{_PROCESSORS}.watermark:Watermark",
            "Marks the answer, so that it can be recognised.",
        ),
    ]


@hookimpl
def genkit_register_samplers() -> list[Lazy]:
    """What chooses the next token."""
    return [
        lazy("greedy", f"{_SAMPLERS}.greedy:Greedy", "Takes the most probable token."),
        lazy("categorical", f"{_SAMPLERS}.categorical:Categorical", "Draws from the distribution."),
        lazy(
            "mirostat",
            f"{_SAMPLERS}.mirostat:Mirostat",
            "Draws so that the surprise of the text stays near a target.",
        ),
        lazy(
            "adaptive_p",
            f"{_SAMPLERS}.adaptive_p:AdaptiveP",
            "Draws so that the probability of the chosen tokens stays near a target.",
        ),
    ]


@hookimpl
def genkit_register_stop_criteria() -> list[Lazy]:
    """What ends a text."""
    return [
        lazy("eos", f"{_STOPPING}.eos:Eos", "The model's own end tokens."),
        lazy("stop_token_ids", f"{_STOPPING}.stop_token_ids:StopTokenIds", "Certain token ids."),
        lazy(
            "stop_strings", f"{_STOPPING}.stop_strings:StopStrings", "Certain strings in the text."
        ),
        lazy("stop_regex", f"{_STOPPING}.stop_regex:StopRegex", "Regular expressions in the text."),
        lazy(
            "max_new_tokens",
            f"{_STOPPING}.max_new_tokens:MaxNewTokens",
            "A number of generated tokens.",
        ),
        lazy(
            "max_length",
            f"{_STOPPING}.max_length:MaxLength",
            "A number of tokens, the prompt included.",
        ),
        lazy("time_limit", f"{_STOPPING}.time_limit:TimeLimit", "A time."),
        lazy(
            "low_confidence",
            f"{_STOPPING}.low_confidence:LowConfidence",
            "A model that no longer knows how to go on.",
        ),
        lazy("repeating", f"{_STOPPING}.repeating:Repeating", "The same few tokens over and over."),
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
