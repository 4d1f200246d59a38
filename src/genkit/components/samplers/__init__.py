"""Samplers: each chooses the next token from the processed logits, one class a file."""

from genkit.components.samplers.adaptive_p import AdaptiveP
from genkit.components.samplers.categorical import Categorical
from genkit.components.samplers.greedy import Greedy
from genkit.components.samplers.mirostat import Mirostat

__all__ = ["AdaptiveP", "Categorical", "Greedy", "Mirostat"]
