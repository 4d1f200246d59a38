"""Logits processors: each changes the distribution of the next token, one class a file."""

from genkit.components.processors.min_p import MinP
from genkit.components.processors.repetition_penalty import RepetitionPenalty
from genkit.components.processors.temperature import Temperature
from genkit.components.processors.top_k import TopK
from genkit.components.processors.top_p import TopP

__all__ = ["MinP", "RepetitionPenalty", "Temperature", "TopK", "TopP"]
