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
        lazy(
            "pytorch",
            "genkit.backends.pytorch:PyTorch",
            "A causal language model of transformers, run by PyTorch on the CPU or on CUDA.",
        ),
        lazy(
            "onnxruntime",
            "genkit.backends.onnxruntime_:OnnxRuntime",
            "A graph of a causal language model, run by ONNX Runtime on the CPU or on CUDA.",
        ),
    ]


@hookimpl
def genkit_register_contexts() -> list[Lazy]:
    """What turns a prompt into ids."""
    return [
        lazy("text", f"{_CONTEXTS}:Text", "The prompt as it is: the model goes on with the text."),
        lazy(
            "chat",
            f"{_CONTEXTS}:Chat",
            "A conversation in the model's own chat template; the model answers.",
        ),
    ]


@hookimpl
def genkit_register_cache_managers() -> list[Lazy]:
    """What hands out the memory of a run."""
    return [
        lazy("none", f"{_CACHES}:NoCache", "No cache: every step computes the whole text again."),
        lazy(
            "dynamic",
            f"{_CACHES}:Dynamic",
            "A cache of the model's own that grows with the text and is dropped after the run.",
        ),
        lazy(
            "static",
            f"{_CACHES}:Static",
            "A cache of the model's own, allocated once for the longest that the run can become.",
        ),
        lazy(
            "prefix",
            f"{_CACHES}:Prefix",
            "Keeps what earlier runs have computed, for prompts that begin with the same tokens.",
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
            "One token a row and step, drawn from the model's distribution given all before.",
        ),
    ]


@hookimpl
def genkit_register_logits_processors() -> list[Lazy]:
    """What changes the distribution of the next token."""
    return [
        lazy(
            "temperature",
            f"{_PROCESSORS}.temperature:Temperature",
            "Divides the logits: below 1 the distribution sharpens, above 1 it flattens.",
        ),
        lazy("top_k", f"{_PROCESSORS}.top_k:TopK", "Keeps the k most probable tokens."),
        lazy(
            "top_p",
            f"{_PROCESSORS}.top_p:TopP",
            "Keeps the most probable tokens until they hold the mass p: nucleus sampling.",
        ),
        lazy(
            "min_p",
            f"{_PROCESSORS}.min_p:MinP",
            "Keeps every token at least `min_p` times as probable as the most probable one.",
        ),
        lazy(
            "dynamic_temperature",
            f"{_PROCESSORS}.dynamic_temperature:DynamicTemperature",
            "Divides the logits by a temperature, the higher the less certain the model is.",
        ),
        lazy(
            "typical_p",
            f"{_PROCESSORS}.typical_p:TypicalP",
            "Keeps the most typical tokens until they hold the mass p: locally typical sampling.",
        ),
        lazy(
            "epsilon",
            f"{_PROCESSORS}.epsilon:Epsilon",
            "Keeps every token whose probability is at least epsilon.",
        ),
        lazy(
            "eta",
            f"{_PROCESSORS}.eta:Eta",
            "Keeps every token whose probability is at least eta, lower as entropy rises.",
        ),
        lazy(
            "top_h",
            f"{_PROCESSORS}.top_h:TopH",
            "Keeps the most probable tokens that hold at most the share h of the entropy.",
        ),
        lazy(
            "top_n_sigma",
            f"{_PROCESSORS}.top_n_sigma:TopNSigma",
            "Keeps every token whose logit is at most n standard deviations below the largest.",
        ),
        lazy(
            "xtc",
            f"{_PROCESSORS}.xtc:Xtc",
            "Excludes top choices: all tokens above a threshold but the least probable of them.",
        ),
        lazy(
            "tail_free",
            f"{_PROCESSORS}.tail_free:TailFree",
            "Cuts the tail off where the sorted probabilities stop bending: tail-free sampling.",
        ),
        lazy(
            "top_a",
            f"{_PROCESSORS}.top_a:TopA",
            "Keeps every token whose probability is at least `a` times the square of the largest.",
        ),
        lazy(
            "smoothing",
            f"{_PROCESSORS}.smoothing:Smoothing",
            "Bends the logits: the best tokens move together, the others away.",
        ),
        lazy(
            "renormalize",
            f"{_PROCESSORS}.renormalize:Renormalize",
            "Turns logits into log-probabilities: the distribution stays, the numbers change.",
        ),
        lazy(
            "remove_invalid",
            f"{_PROCESSORS}.remove_invalid:RemoveInvalid",
            "Replaces NaN by 0 and +inf by the largest number, so that a faulty model goes on.",
        ),
        lazy(
            "repetition_penalty",
            f"{_PROCESSORS}.repetition_penalty:RepetitionPenalty",
            "Makes every token that was there already less likely, once, however often it came.",
        ),
        lazy(
            "presence_penalty",
            f"{_PROCESSORS}.presence_penalty:PresencePenalty",
            "Takes a fixed amount from every token that was there already, however often it came.",
        ),
        lazy(
            "frequency_penalty",
            f"{_PROCESSORS}.frequency_penalty:FrequencyPenalty",
            "Takes an amount from every token for each time that it was there.",
        ),
        lazy(
            "prompt_repetition_penalty",
            f"{_PROCESSORS}.prompt_repetition_penalty:PromptRepetitionPenalty",
            "Makes every token of the prompt more likely, so that the answer keeps to it.",
        ),
        lazy(
            "no_repeat_ngram",
            f"{_PROCESSORS}.no_repeat_ngram:NoRepeatNGram",
            "Forbids every token that would complete a sequence of n tokens a second time.",
        ),
        lazy(
            "prompt_no_repeat_ngram",
            f"{_PROCESSORS}.prompt_no_repeat_ngram:PromptNoRepeatNGram",
            "Forbids every token that would complete a sequence of n tokens of the prompt.",
        ),
        lazy(
            "dry",
            f"{_PROCESSORS}.dry:Dry",
            "Makes tokens less likely that would continue a repetition, the more the longer it is.",
        ),
        lazy(
            "allowed_tokens",
            f"{_PROCESSORS}.allowed_tokens:AllowedTokens",
            "Forbids all tokens but certain ones, in every step.",
        ),
        lazy(
            "bad_words",
            f"{_PROCESSORS}.bad_words:BadWords",
            "Forbids every token that would complete one of some words.",
        ),
        lazy(
            "begin_suppress_tokens",
            f"{_PROCESSORS}.begin_suppress_tokens:BeginSuppressTokens",
            "Forbids certain tokens at the beginning of an answer.",
        ),
        lazy(
            "forced_bos",
            f"{_PROCESSORS}.forced_bos:ForcedBos",
            "Allows a single token at the beginning of an answer.",
        ),
        lazy(
            "forced_eos",
            f"{_PROCESSORS}.forced_eos:ForcedEos",
            "Allows nothing but end tokens in the last place that a row's limit leaves.",
        ),
        lazy(
            "length_decay",
            f"{_PROCESSORS}.length_decay:LengthDecay",
            "Raises the end tokens more with every token, from a number of them on.",
        ),
        lazy(
            "min_length",
            f"{_PROCESSORS}.min_length:MinLength",
            "Forbids the end tokens until prompt and answer together have a number of tokens.",
        ),
        lazy(
            "min_new_tokens",
            f"{_PROCESSORS}.min_new_tokens:MinNewTokens",
            "Forbids the end tokens until a row has generated a number of tokens.",
        ),
        lazy(
            "prefix_allowed_tokens",
            f"{_PROCESSORS}.prefix_allowed_tokens:PrefixAllowedTokens",
            "Forbids all tokens but those that a function allows after the tokens so far.",
        ),
        lazy(
            "sequence_bias",
            f"{_PROCESSORS}.sequence_bias:SequenceBias",
            "Adds a number to the logit of a token that would complete one of some sequences.",
        ),
        lazy(
            "suppress_tokens",
            f"{_PROCESSORS}.suppress_tokens:SuppressTokens",
            "Forbids certain tokens in every step.",
        ),
        lazy(
            "token_bias",
            f"{_PROCESSORS}.token_bias:TokenBias",
            "Adds a number of its own to the logit of each of some tokens.",
        ),
        lazy(
            "watermark",
            f"{_PROCESSORS}.watermark:Watermark",
            "Marks the answer, so that whoever knows the secret can tell that a model wrote it.",
        ),
    ]


@hookimpl
def genkit_register_samplers() -> list[Lazy]:
    """What chooses the next token."""
    return [
        lazy(
            "greedy",
            f"{_SAMPLERS}.greedy:Greedy",
            "Chooses the most probable token; among equal ones the lowest id.",
        ),
        lazy(
            "categorical",
            f"{_SAMPLERS}.categorical:Categorical",
            "Draws a token with its probability.",
        ),
        lazy(
            "mirostat",
            f"{_SAMPLERS}.mirostat:Mirostat",
            "Keeps as many tokens as bring the surprise near `tau` bits a token, and draws.",
        ),
        lazy(
            "adaptive_p",
            f"{_SAMPLERS}.adaptive_p:AdaptiveP",
            "Prefers tokens that bring the average of the chosen probabilities near `target`.",
        ),
    ]


@hookimpl
def genkit_register_stop_criteria() -> list[Lazy]:
    """What ends a text."""
    return [
        lazy("eos", f"{_STOPPING}.eos:Eos", "Ends a row at a token that ends texts."),
        lazy(
            "stop_token_ids",
            f"{_STOPPING}.stop_token_ids:StopTokenIds",
            "Ends a row at one of the given tokens.",
        ),
        lazy(
            "stop_strings",
            f"{_STOPPING}.stop_strings:StopStrings",
            "Ends a row when one of the given strings appears in its text.",
        ),
        lazy(
            "stop_regex",
            f"{_STOPPING}.stop_regex:StopRegex",
            "Ends a row when a regular expression matches in its text.",
        ),
        lazy(
            "max_new_tokens",
            f"{_STOPPING}.max_new_tokens:MaxNewTokens",
            "Ends a row when it has generated that many tokens.",
        ),
        lazy(
            "max_length",
            f"{_STOPPING}.max_length:MaxLength",
            "Ends a row when prompt and answer together have that many tokens.",
        ),
        lazy(
            "time_limit",
            f"{_STOPPING}.time_limit:TimeLimit",
            "Ends all rows after that many seconds, counted from the first prefill on.",
        ),
        lazy(
            "low_confidence",
            f"{_STOPPING}.low_confidence:LowConfidence",
            "Ends a row when the model's largest probability stays below a threshold.",
        ),
        lazy(
            "repeating",
            f"{_STOPPING}.repeating:Repeating",
            "Ends a row whose last tokens are the same block several times in a row.",
        ),
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
            "The exporter of transformers 5.x: one graph for all steps; most architectures.",
        ),
        lazy(
            "optimum",
            f"{_EXPORTERS}.optimum_:Optimum",
            "The exporter of optimum-onnx, which needs transformers 4.57.",
        ),
    ]
