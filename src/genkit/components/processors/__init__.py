"""Logits processors: each changes the distribution of the next token, one class a file."""

from genkit.components.processors.allowed_tokens import AllowedTokens
from genkit.components.processors.bad_words import BadWords
from genkit.components.processors.begin_suppress_tokens import BeginSuppressTokens
from genkit.components.processors.dry import Dry
from genkit.components.processors.dynamic_temperature import DynamicTemperature
from genkit.components.processors.epsilon import Epsilon
from genkit.components.processors.eta import Eta
from genkit.components.processors.forced_bos import ForcedBos
from genkit.components.processors.forced_eos import ForcedEos
from genkit.components.processors.frequency_penalty import FrequencyPenalty
from genkit.components.processors.length_decay import LengthDecay
from genkit.components.processors.min_length import MinLength
from genkit.components.processors.min_new_tokens import MinNewTokens
from genkit.components.processors.min_p import MinP
from genkit.components.processors.no_repeat_ngram import NoRepeatNGram
from genkit.components.processors.prefix_allowed_tokens import PrefixAllowedTokens
from genkit.components.processors.presence_penalty import PresencePenalty
from genkit.components.processors.prompt_no_repeat_ngram import PromptNoRepeatNGram
from genkit.components.processors.prompt_repetition_penalty import PromptRepetitionPenalty
from genkit.components.processors.remove_invalid import RemoveInvalid
from genkit.components.processors.renormalize import Renormalize
from genkit.components.processors.repetition_penalty import RepetitionPenalty
from genkit.components.processors.sequence_bias import SequenceBias
from genkit.components.processors.smoothing import Smoothing
from genkit.components.processors.suppress_tokens import SuppressTokens
from genkit.components.processors.tail_free import TailFree
from genkit.components.processors.temperature import Temperature
from genkit.components.processors.token_bias import TokenBias
from genkit.components.processors.top_a import TopA
from genkit.components.processors.top_h import TopH
from genkit.components.processors.top_k import TopK
from genkit.components.processors.top_n_sigma import TopNSigma
from genkit.components.processors.top_p import TopP
from genkit.components.processors.typical_p import TypicalP
from genkit.components.processors.watermark import Watermark
from genkit.components.processors.xtc import Xtc

__all__ = [
    "AllowedTokens",
    "BadWords",
    "BeginSuppressTokens",
    "Dry",
    "DynamicTemperature",
    "Epsilon",
    "Eta",
    "ForcedBos",
    "ForcedEos",
    "FrequencyPenalty",
    "LengthDecay",
    "MinLength",
    "MinNewTokens",
    "MinP",
    "NoRepeatNGram",
    "PrefixAllowedTokens",
    "PresencePenalty",
    "PromptNoRepeatNGram",
    "PromptRepetitionPenalty",
    "RemoveInvalid",
    "Renormalize",
    "RepetitionPenalty",
    "SequenceBias",
    "Smoothing",
    "SuppressTokens",
    "TailFree",
    "Temperature",
    "TokenBias",
    "TopA",
    "TopH",
    "TopK",
    "TopNSigma",
    "TopP",
    "TypicalP",
    "Watermark",
    "Xtc",
]
